package e2e

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// An authority is what the API says of an org's.
type authority struct {
	Trust   string `json:"trust"`
	Waiting int    `json:"waiting_sandboxes"`
	Roots   []struct {
		Version int64  `json:"version"`
		State   string `json:"state"`
		List    string `json:"crl"`
	} `json:"roots"`
	Intermediates []struct {
		Serial  string     `json:"serial"`
		Root    int64      `json:"root"`
		Revoked *time.Time `json:"revoked_at"`
	} `json:"intermediates"`
}

func authorityOf(t *testing.T, p *lab.Product) authority {
	t.Helper()
	var a authority
	call(t, p, "GET", "/settings/ca", nil, 200, &a)
	return a
}

func (a authority) states() string {
	var all []string
	for _, r := range a.Roots {
		all = append(all, r.State)
	}
	return strings.Join(all, " ")
}

const askAPI = `{"to":"api.test:443","requests":[{"method":"GET","target":"/","host":"api.test"}]}`

// TestRootIsRotatedWithOverlap: a sandbox that runs trusts both roots, program by program; the new one signs once no sandbox of before
// lives. Without an overlap what was given before is worth nothing at once.
func TestRootIsRotatedWithOverlap(t *testing.T) {
	t.Parallel()
	_, p := own(t)
	ceiling(t, p, inspect("api", "api.test"))
	b := armed(t, p)
	asks := func(when string, b *box, want bool) {
		t.Helper()
		if r := b.exec("/workspace/hostile", "opened", askAPI); (r.Code == 0) != want {
			t.Errorf("%s: %+v", when, r)
		}
	}
	asks("before", b, true)
	// A program that runs all along, and holds open what it trusted at its start.
	b.background(`{ while [ ! -e /workspace/now ]; do sleep 0.1; done; cat >/workspace/held; touch /workspace/done; } </etc/portreeve/bundle.pem`)
	first := authorityOf(t, p)
	if first.states() != "signing" || b.exec("cat", "/etc/portreeve/ca.pem").Stdout != first.Trust {
		t.Fatalf("before: %+v", first)
	}

	if r := p.CLI("ca", "rotate", "--after", "1h"); r.Code != 0 || !strings.Contains(r.Stderr, "(1 now)") {
		t.Fatalf("ca rotate: %v", r)
	}
	both := authorityOf(t, p)
	if both.states() != "next signing" || both.Waiting != 1 || !strings.HasPrefix(both.Trust, first.Trust) || strings.Count(both.Trust, "BEGIN") != 2 {
		t.Fatalf("rotating: %+v", both)
	}
	knows := func(b *box, pem string) {
		t.Helper()
		if err := lab.Await(20*time.Second, "sandbox that knows whom to trust", func() bool { return b.exec("cat", "/etc/portreeve/ca.pem").Stdout == pem }); err != nil {
			t.Error(err)
		}
		if r := b.exec("cat", "/etc/portreeve/bundle.pem"); !strings.HasSuffix(r.Stdout, pem) {
			t.Errorf("the bundle does not end with %s", pem)
		}
	}
	knows(b, both.Trust)
	asks("while the old root signs", b, true)
	if r := b.exec("sh", "-c", "touch /workspace/now; while [ ! -e /workspace/done ]; do sleep 0.1; done; cat /workspace/held"); r.Code != 0 || !strings.HasSuffix(r.Stdout, first.Trust) {
		t.Errorf("what was open at the rotation: %+v", r)
	}
	if answer, err := p.API("POST", "/settings/ca/rotate", map[string]any{}); err != nil || answer.Status != 409 {
		t.Errorf("a second rotation: %v %v", answer, err)
	}

	call(t, p, "DELETE", "/sandbox/"+b.ID, nil, 200, nil)
	if err := lab.Await(20*time.Second, "new root that signs", func() bool { return authorityOf(t, p).states() == "signing leaving" }); err != nil {
		t.Fatal(err)
	}
	c := armed(t, p)
	asks("under the new root", c, true)
	now := authorityOf(t, p)
	if len(now.Intermediates) == 0 || now.Intermediates[0].Root != 2 || !strings.HasSuffix(now.Trust, first.Trust) {
		t.Errorf("under the new root: %+v", now)
	}

	// At once: what the sandbox holds is worth nothing until it has the new root, a moment later.
	c.exec("cp", "/etc/portreeve/bundle.pem", "/workspace/old.pem")
	if r := p.CLI("ca", "rotate", "--now"); r.Code != 0 {
		t.Fatalf("ca rotate --now: %v", r)
	}
	last := authorityOf(t, p)
	if last.states() != "signing retired retired" || strings.Count(last.Trust, "BEGIN") != 1 {
		t.Errorf("at once: %+v", last)
	}
	if r := c.exec("sh", "-c", "SSL_CERT_FILE=/workspace/old.pem SSL_CERT_DIR=/dev/null /workspace/hostile opened '"+askAPI+"'"); r.Code == 0 || !strings.Contains(r.Stdout, "certificate") {
		t.Errorf("who trusts retired roots: %+v", r)
	}
	knows(c, last.Trust)
	asks("who trusts the last", c, true)
	for action, want := range map[string]int{"authority.rotate": 2, "authority.switch": 1} {
		var log struct {
			Total int `json:"total"`
		}
		if answer, err := p.API("GET", "/audit?action="+action, nil); err != nil || answer.Into(&log) != nil || log.Total != want {
			t.Errorf("the audit log of %s: %v %v", action, answer, err)
		}
	}
}

// TestRevokedIntermediateIsListed: by a list that a sandbox reaches where the certificate says, and anybody at the API's address. The
// edge signs with another from then on.
func TestRevokedIntermediateIsListed(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	ceiling(t, p, inspect("api", "api.test"))
	b := armed(t, p)
	ask := func() {
		t.Helper()
		if r := b.exec("/workspace/hostile", "opened", askAPI); r.Code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	ask()
	before := authorityOf(t, p)
	if len(before.Intermediates) != 1 {
		t.Fatalf("%+v", before)
	}
	block, _ := pem.Decode([]byte(before.Trust))
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	read := func(der []byte) (serials []string) {
		t.Helper()
		list, err := x509.ParseRevocationList(der)
		if err != nil {
			t.Fatal(err)
		}
		if err := list.CheckSignatureFrom(root); err != nil {
			t.Error(err)
		}
		for _, e := range list.RevokedCertificateEntries {
			serials = append(serials, e.SerialNumber.Text(16))
		}
		return serials
	}
	at := strings.TrimSuffix(p.Info.APIURL, "/api/v1")
	list := func() []string {
		t.Helper()
		resp, err := l.Client().Get(at + before.Roots[0].List)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		der, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/pkix-crl" {
			t.Fatalf("%d %s, %v", resp.StatusCode, der, err)
		}
		return read(der)
	}
	if got := list(); len(got) != 0 {
		t.Errorf("before: %v", got)
	}
	if r := p.CLI("ca", "revoke", before.Intermediates[0].Serial); r.Code != 0 {
		t.Fatalf("ca revoke: %v", r)
	}
	if got := list(); len(got) != 1 || !strings.HasSuffix(before.Intermediates[0].Serial, got[0]) {
		t.Errorf("after: %v, want %v", got, before.Intermediates[0].Serial)
	}
	// In the sandbox, with no header of ours, as a program that checks certificates does.
	name := before.Roots[0].List[strings.LastIndex(before.Roots[0].List, "/"):]
	r := b.exec("sh", "-c", "wget -qO- http://portreeve.internal/ca"+name+" | base64")
	der := decode(t, r.Stdout)
	if got := read(der); len(got) != 1 {
		t.Errorf("in the sandbox: %v", got)
	}
	// And by a door, where the certificates name the same place.
	if r := p.CLI("attach", "--", "curl", "-fsS", "-o", "/dev/null", "-w", "%{content_type}", "http://portreeve.internal/ca"+name); r.Code != 0 || r.Stdout != "application/pkix-crl" {
		t.Errorf("by a door: %v", r)
	}
	if r := b.exec("wget", "-qO-", "http://portreeve.internal/ca/00.crl"); r.Code == 0 {
		t.Errorf("a list that is not there: %+v", r)
	}
	ask()
	after := authorityOf(t, p)
	if len(after.Intermediates) != 2 || after.Intermediates[0].Revoked != nil || after.Intermediates[1].Revoked == nil || after.Intermediates[1].Serial != before.Intermediates[0].Serial {
		t.Errorf("after: %+v", after)
	}
}

// decode reads base64 with line ends in it.
func decode(t *testing.T, text string) []byte {
	t.Helper()
	out, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return out
}
