package e2e

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portreeve.dev/lab"
)

// A secret of a test. Its value is one that nothing else holds.
type secret struct {
	t     *testing.T
	p     *lab.Product
	name  string
	value string
	ID    string
}

// keep stores a new secret by the command line, as somebody would, and grants it.
func keep(t *testing.T, p *lab.Product, grant ...string) *secret {
	t.Helper()
	s := &secret{t: t, p: p, name: "key-" + strings.ToLower(rand.Text()[:8])}
	s.set()
	if r := p.CLI(append([]string{"grant", s.name}, grant...)...); r.Code != 0 {
		t.Fatalf("granting: %v", r)
	}
	var v struct {
		Secret struct {
			ID string `json:"id"`
		} `json:"secret"`
	}
	call(t, p, "GET", "/secrets/"+s.name+"/grants", nil, 200, &v)
	s.ID = v.Secret.ID
	t.Cleanup(func() { p.API("DELETE", "/secrets/"+s.name, nil) })
	return s
}

// set gives it a new value.
func (s *secret) set() {
	s.t.Helper()
	s.value = "canary-" + rand.Text()
	r := s.p.CLIWith(s.value+"\n", "secret", "set", s.name)
	if r.Code != 0 || strings.Contains(r.Stdout+r.Stderr, s.value) {
		s.t.Fatalf("keeping a secret: %v", r)
	}
}

// sent lets the sandbox ask something and returns what arrived upstream, which must be one request.
func sent(t *testing.T, l *lab.Lab, ask func()) lab.Request {
	t.Helper()
	before := len(l.Web.Requests(""))
	ask()
	arrived := l.Web.Requests("")[before:]
	if len(arrived) != 1 {
		t.Fatalf("%d requests arrived, want 1: %+v", len(arrived), arrived)
	}
	return arrived[0]
}

// own is what a sandbox sends to get in by itself, at every place that is known for it.
var ownCredentials = [][2]string{
	{"Authorization", "Bearer mine"}, {"X-Api-Key", "mine"}, {"Cookie", "session=mine"}, {"X-Auth-Token", "mine"}, {"Proxy-Authorization", "Basic bWluZQ=="},
}

func bearer(r lab.Request) string { return strings.Join(r.Header["Authorization"], " and ") }

// TestSecretGoesOnlyWhereItIsGranted has for each place that a grant doesn't name the one beside it that it names.
func TestSecretGoesOnlyWhereItIsGranted(t *testing.T) {
	l, p := shared(t)
	ceiling(t, p, inspect("api", "api.test"), inspect("good", "good.test"),
		allow("clear", "api.test", "ports", []int{80}, "protocols", []string{"http"}))
	b := armed(t, p)
	s := keep(t, p, "--host", "api.test", "--method", "GET,POST", "--path", "/v1/**")
	right := "Bearer " + s.value
	for name, h2 := range versions {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct {
				name string
				q    question
				want string
			}{
				{"a granted request", get("/v1/x"), right},
				{"a granted method", question{Method: "POST", Target: "/v1/x", Body: "hello"}, right},
				{"a method that is not granted", question{Method: "PUT", Target: "/v1/x", Body: "hello"}, ""},
				{"a path that is not granted", get("/v2/x"), ""},
				{"a path that only looks like it", get("/v1/../v2/x"), ""},
			} {
				r := sent(t, l, func() {
					if got := statuses(b.opened(h2, c.q)); got != "200" {
						t.Errorf("%s: %s", c.name, got)
					}
				})
				if bearer(r) != c.want {
					t.Errorf("%s: Authorization %q, want %q", c.name, bearer(r), c.want)
				}
			}
		})
	}
	r := sent(t, l, func() {
		if got := statuses(b.openedTo("good.test:443", false, get("/v1/x"))); got != "200" {
			t.Errorf("another host: %s", got)
		}
	})
	if bearer(r) != "" {
		t.Errorf("another host: %q", bearer(r))
	}
	r = sent(t, l, func() {
		if open, said := b.hostile("http", "api.test:80", "api.test", "/v1/x"); !open || !strings.Contains(said, " 200 ") {
			t.Errorf("in the clear: %s", said)
		}
	})
	if bearer(r) != "" || r.TLS {
		t.Errorf("in the clear: %+v", r)
	}
}

// TestAllowedHostIsNotAnAllowedAccount: on a granted host nothing of what the sandbox calls its own arrives, also where the
// grant does not fit, and also in the clear.
func TestAllowedHostIsNotAnAllowedAccount(t *testing.T) {
	l, p := shared(t)
	ceiling(t, p, inspect("api", "api.test"), allow("clear", "api.test", "ports", []int{80}, "protocols", []string{"http"}),
		inspect("free", "good.test", "foreign_credentials", "allow"))
	b := armed(t, p)
	s := keep(t, p, "--host", "api.test", "--path", "/v1/**")
	mine := func(path string) question {
		q := get(path + "?api_key=mine&page=2&Access_Token=mine&%74oken=mine")
		for _, h := range ownCredentials {
			q = q.with(h[0], h[1])
		}
		return q.with("X-Plain", "kept")
	}
	check := func(name string, r lab.Request, want string) {
		t.Helper()
		if bearer(r) != want {
			t.Errorf("%s: Authorization %q, want %q", name, bearer(r), want)
		}
		if all := fmt.Sprint(r.Header, r.URI); strings.Contains(all, "mine") || strings.Contains(all, "bWluZQ") {
			t.Errorf("%s: what is the sandbox's own arrived: %s", name, all)
		}
		if r.Header.Get("X-Plain") != "kept" || !strings.HasSuffix(r.URI, "?page=2") {
			t.Errorf("%s: what is no credential did not arrive: %s %v", name, r.URI, r.Header)
		}
	}
	for name, h2 := range versions {
		check(name, sent(t, l, func() { b.opened(h2, mine("/v1/x")) }), "Bearer "+s.value)
		check(name+", where the grant does not fit", sent(t, l, func() { b.opened(h2, mine("/v2/x")) }), "")
	}
	r := sent(t, l, func() {
		b.exec("wget", "-qO-", "--header", "Authorization: Bearer mine", "--header", "Cookie: a=mine", "--header", "X-Plain: kept", "http://api.test/v1/x?api_key=mine&page=2")
	})
	check("in the clear", r, "")
	// The twin: where nothing is granted and the rule lets it, the sandbox's own arrives.
	r = sent(t, l, func() { b.openedTo("good.test:443", false, mine("/v1/x")) })
	if bearer(r) != "Bearer mine" || r.Header.Get("X-Api-Key") != "mine" || !strings.Contains(r.URI, "api_key=mine") {
		t.Errorf("a host without a grant: %s %v", r.URI, r.Header)
	}
}

// TestSecretIsTakenBack: rotated, ungranted or deleted, the next request knows, also on a connection that is open.
func TestSecretIsTakenBack(t *testing.T) {
	l, p := shared(t)
	ceiling(t, p, inspect("api", "api.test"))
	b := armed(t, p)
	s := keep(t, p, "--host", "api.test")
	seen := func() string { return bearer(sent(t, l, func() { b.opened(false, get("/bytes/1")) })) }
	first := s.value
	if got := seen(); got != "Bearer "+first {
		t.Fatalf("at first: %q", got)
	}
	s.set()
	if got := seen(); got != "Bearer "+s.value || s.value == first {
		t.Errorf("the request after a new value: %q", got)
	}
	d := b.decided("used the second version", func(d decision) bool { return len(d.Secrets) == 1 && d.Secrets[0].Version == 2 })
	if d.Secrets[0].Secret != s.ID || d.Secrets[0].Place != "header:authorization" {
		t.Errorf("the use is recorded as %+v", d.Secrets)
	}
	call(t, p, "PUT", "/secrets/"+s.name+"/grants", map[string]any{"grants": []any{}}, 200, nil)
	if got := seen(); got != "" {
		t.Errorf("the request after the grant was taken back: %q", got)
	}
	if r := p.CLI("grant", s.name, "--host", "api.test", "--header", "X-Key", "--template", "{value}"); r.Code != 0 {
		t.Fatal(r)
	}
	if r := sent(t, l, func() { b.opened(false, get("/bytes/1")) }); r.Header.Get("X-Key") != s.value || bearer(r) != "" {
		t.Errorf("the request after another grant: %v", r.Header)
	}
	if r := p.CLI("secret", "delete", s.name); r.Code != 0 {
		t.Fatal(r)
	}
	if r := sent(t, l, func() { b.opened(false, get("/bytes/1")) }); r.Header.Get("X-Key") != "" || bearer(r) != "" {
		t.Errorf("the request after it was deleted: %v", r.Header)
	}
}

// TestGrantOpensNothing: a grant does not widen what the policy allows, and stands on no connection that is passed through.
func TestGrantOpensNothing(t *testing.T) {
	l, p := shared(t)
	ceiling(t, p, inspect("good", "good.test"))
	b := armed(t, p)
	keep(t, p, "--host", "api.test")
	before := len(l.Web.Requests("api.test"))
	if open, said := b.hostile("tls", "api.test:443", "api.test", "api.test", "/"); open {
		t.Errorf("a granted host that no rule allows: %s", said)
	}
	passed := map[string]any{"rules": []any{allow("pass", "api.test")}}
	if answer, err := p.API("PUT", "/settings/egress", passed); err != nil || answer.Status != 422 || !strings.Contains(string(answer.Body), "tls") {
		t.Errorf("a rule that passes a granted host: %v %v", answer, err)
	}
	if n := len(l.Web.Requests("api.test")) - before; n != 0 {
		t.Errorf("%d requests arrived", n)
	}
}

// TestNoValueInside looks for a value that a sandbox has used in its memory and files, in all that we keep, and in what we say.
func TestNoValueInside(t *testing.T) {
	l, p := shared(t)
	ceiling(t, p, inspect("api", "api.test"))
	b := armed(t, p)
	s := keep(t, p, "--host", "api.test")
	// The judge must see what is there: one canary in the memory of a process, one in a file.
	inMemory, inFile := "canary-"+rand.Text(), "canary-"+rand.Text()
	b.background("(x=" + inMemory + "; while :; do sleep 1; done; echo $x)")
	b.write("/workspace/file", []byte(inFile))
	for _, h2 := range versions {
		r := sent(t, l, func() { b.opened(h2, get("/bytes/10").with("Authorization", "Bearer mine")) }) // an answer that repeats nothing
		if bearer(r) != "Bearer "+s.value {
			t.Fatalf("the value did not arrive: %q", bearer(r))
		}
	}
	b.decided("used it", func(d decision) bool { return len(d.Secrets) == 1 && d.Secrets[0].Secret == s.ID && d.Closed })

	image := filepath.Join(l.Dir, "image")
	if err := os.Mkdir(image, 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(image)
	if r := p.Runsc("checkpoint", "--leave-running", "--compression=none", "--image-path="+image, b.view().RunscID); r.Code != 0 {
		t.Fatalf("making a checkpoint: %v", r)
	}
	b.works("after the checkpoint", "true")
	for what, canary := range map[string]string{"memory": inMemory, "a file": inFile} {
		if found := search(t, forms(canary), image); len(found) == 0 {
			t.Errorf("the image does not show what is in %s: this test looks at the wrong place", what)
		}
	}
	for _, found := range search(t, forms(s.value), image, p.Info.State, p.Info.RunscRoot, filepath.Dir(p.LogFile)) {
		t.Errorf("the value is in %s", found)
	}
	if found := search(t, forms(b.ID), p.Info.State); len(found) == 0 {
		t.Error("the state does not even hold the sandbox's id: this test looks at the wrong place")
	}
	for _, path := range []string{"/secrets", "/secrets/" + s.name + "/grants", "/audit", "/settings/egress/audit", "/settings/egress/audit?sandbox_id=" + b.ID,
		"/sandbox/" + b.ID, "/sandboxes", "/decisions/" + b.decisions()[0].ID, "/settings/egress"} {
		answer, err := p.API("GET", path, nil)
		if err != nil || answer.Status != http.StatusOK {
			t.Errorf("GET %s: %v %v", path, answer, err)
		}
		for name, form := range forms(s.value) {
			if bytes.Contains(answer.Body, form) || strings.Contains(fmt.Sprint(answer.Header), string(form)) {
				t.Errorf("GET %s shows the value, as %s", path, name)
			}
		}
	}
	// Refusals say what is wrong, and not with what.
	for _, body := range []any{map[string]any{"value": s.value + "\n\x00"}, map[string]any{"value": []string{s.value}}, map[string]any{"valu": s.value}, `{"value":"` + s.value} {
		answer, err := p.API("PUT", "/secrets/"+s.name, body)
		if err != nil || answer.Status < 400 || bytes.Contains(answer.Body, []byte(s.value)) {
			t.Errorf("a refused value: %v %v", answer, err)
		}
	}
}

// forms are the ways in which a value may lie about: as it is, in hex, and in base64 behind 0, 1 or 2 other bytes.
func forms(value string) map[string][]byte {
	all := map[string][]byte{
		"itself": []byte(value), "hex": []byte(hex.EncodeToString([]byte(value))), "HEX": []byte(strings.ToUpper(hex.EncodeToString([]byte(value)))),
	}
	for shift := range 3 {
		for name, encoding := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			text := encoding.EncodeToString(append(make([]byte, shift), value...))
			// Cut off what neighbours would change.
			all[fmt.Sprintf("%s behind %d bytes", name, shift)] = []byte(text[(8*shift+5)/6 : (8*(shift+len(value)))/6])
		}
	}
	return all
}

// search names the files below the folders that hold any of the forms.
func search(t *testing.T, forms map[string][]byte, folders ...string) (found []string) {
	t.Helper()
	for _, folder := range folders {
		files := 0
		err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil // it has ended meanwhile
			}
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			if os.IsNotExist(err) {
				return nil
			}
			files++
			for name, form := range forms {
				if bytes.Contains(data, form) {
					found = append(found, path+", as "+name)
				}
			}
			return err
		})
		if err != nil || files == 0 {
			t.Errorf("searching %s: %d files, %v", folder, files, err)
		}
	}
	return found
}

func TestFormsFindWhatIsEncoded(t *testing.T) {
	value := "canary-" + rand.Text()
	for shift := range 6 {
		text := base64.StdEncoding.EncodeToString([]byte("Bearer "[:shift] + value + "\r\nnext"))
		n := 0
		for _, form := range forms(value) {
			if strings.Contains(text, string(form)) {
				n++
			}
		}
		if n == 0 {
			t.Errorf("behind %d bytes: no form is in %s", shift, text)
		}
	}
	var quoted json.RawMessage
	if err := json.Unmarshal(fmt.Appendf(nil, "%q", value), &quoted); err != nil || !bytes.Contains(quoted, forms(value)["itself"]) {
		t.Errorf("in JSON it is %s, %v", quoted, err)
	}
}

// A use says which secret went into a request, and where.
type use struct {
	Secret  string `json:"secret_id"`
	Version int64  `json:"version"`
	Place   string `json:"place"`
}
