package api_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/sandboxes"
)

var tunnelURL = regexp.MustCompile(`^https://([a-z2-7]{16}-3000\.tunnel\.localhost):8443$`)

func when(t *testing.T, a *apitest.Answer, field string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, a.String(field))
	if err != nil {
		t.Fatalf("%s: %v: %s", field, err, a.Body)
	}
	return at
}

func TestTunnelLife(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox()
	at := "/sandbox/" + box + "/tunnels"
	a := c.Do("POST", at, object{"port": 3000, "protocol": "https", "expires_in": 120}).Want(201)
	m := tunnelURL.FindStringSubmatch(a.String("url"))
	if m == nil || a.String("http_url") != "http"+strings.TrimPrefix(a.String("url"), "https") || !strings.HasPrefix(a.String("id"), "tun_") || a.String("sandbox_id") != box || a.At("port") != 3000.0 || a.At("public") != false {
		t.Fatalf("%s", a.Body)
	}
	if d := when(t, a, "expires_at").Sub(when(t, a, "created_at")); d != 2*time.Minute {
		t.Errorf("lives for %v", d)
	}
	token := a.String("token")
	if len(token) < 26 {
		t.Errorf("token %q", token)
	}
	if w.Routes.Applied() == 0 || w.Routes.Applied() != w.Feed.Published()[len(w.Feed.Published())-1] {
		t.Errorf("answered before ingress knew: waited for %d, published %v", w.Routes.Applied(), w.Feed.Published())
	}
	// The token is shown once, and only its hash is kept.
	routes, err := w.Store.Routes(t.Context(), time.Time{})
	sum := sha256.Sum256([]byte(token))
	if err != nil || len(routes) != 1 || !bytes.Equal(routes[0].TokenHash, sum[:]) || routes[0].Host != m[1] {
		t.Errorf("stored %+v, %v", routes, err)
	}
	if text, _ := json.Marshal(routes); strings.Contains(string(text), token) {
		t.Error("the token is stored")
	}
	if got := c.Do("GET", at, nil).Want(200); strings.Contains(string(got.Body), "token") || got.String("tunnels.0.id") != a.String("id") || got.String("tunnels.0.url") != a.String("url") {
		t.Errorf("%s", got.Body)
	}
	public := c.Do("POST", at, object{"port": 3000, "public": true}).Want(201)
	if public.At("token") != nil || public.At("public") != true || public.String("url") == a.String("url") {
		t.Errorf("%s", public.Body)
	}
	c.Do("DELETE", at+"/"+a.String("id"), nil).Want(200)
	c.Do("DELETE", at+"/"+a.String("id"), nil).Refused(404, "tunnel_not_found")
	if got := c.Do("GET", at, nil).Want(200); got.String("tunnels.0.id") != public.String("id") || got.At("tunnels.1") != nil {
		t.Errorf("%s", got.Body)
	}
	second := c.Sandbox()
	c.Do("DELETE", "/sandbox/"+second+"/tunnels/"+public.String("id"), nil).Refused(404, "tunnel_not_found")
	c.Do("DELETE", at+"/"+public.String("id"), nil).Want(200)
	if strings.Contains(w.Log.String(), token) {
		t.Error("the token is in the log")
	}
	entries, err := w.Store.AuditChain(t.Context(), c.Org, 1, 1000)
	if err != nil {
		t.Fatal(err)
	}
	count := map[audit.Action]int{}
	for _, e := range entries {
		count[e.Action]++
	}
	if text, _ := json.Marshal(entries); count[audit.TunnelCreate] != 2 || count[audit.TunnelDelete] != 2 || strings.Contains(string(text), token) {
		t.Errorf("audit log: %v", count)
	}
}

func TestTunnelsAreRefusedByField(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	at := "/sandbox/" + c.Sandbox() + "/tunnels"
	for body, location := range map[string]string{
		`{"port":0}`: "body.port", `{"port":65536}`: "body.port", `{"port":-1}`: "body.port", `{"port":"80"}`: "body.port", `{"port":80.5}`: "body.port", `{}`: "body",
		`{"port":80,"expires_in":0}`: "body.expires_in", `{"port":80,"expires_in":86401}`: "body.expires_in", `{"port":80,"expires_in":-1}`: "body.expires_in",
		`{"port":80,"protocol":"tcp"}`: "body.protocol", `{"port":80,"public":"yes"}`: "body.public", `{"port":80,"host":"mine"}`: "body.host",
	} {
		a := c.Do("POST", at, body).Refused(422, "invalid_request")
		if location != "body" {
			a.Refused(422, "invalid_request", location)
		}
	}
	if got := c.Do("GET", at, nil); got.At("tunnels.0") != nil {
		t.Errorf("something was opened: %s", got.Body)
	}
	for _, body := range []string{`{"port":1,"expires_in":1}`, `{"port":65535,"expires_in":86400}`} {
		c.Do("POST", at, body).Want(201)
	}
}

func TestTunnelEndsWithItsSandbox(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox(object{"timeout_seconds": 60})
	at := "/sandbox/" + box + "/tunnels"
	end := when(t, c.Do("GET", "/sandbox/"+box, nil), "expires_at")
	for _, body := range []object{{"port": 80}, {"port": 80, "expires_in": 61}, {"port": 80, "expires_in": 86400}} {
		if got := when(t, c.Do("POST", at, body).Want(201), "expires_at"); !got.Equal(end) {
			t.Errorf("%v: ends %v, the sandbox %v", body, got, end)
		}
	}
	if got := when(t, c.Do("POST", at, object{"port": 80, "expires_in": 30}).Want(201), "expires_at"); !got.Before(end) {
		t.Errorf("a shorter one ends %v", got)
	}
	longer := c.Sandbox()
	if a := c.Do("POST", "/sandbox/"+longer+"/tunnels", object{"port": 80}).Want(201); when(t, a, "expires_at").Sub(when(t, a, "created_at")) > 10*time.Minute {
		t.Errorf("%s", a.Body)
	}
}

func TestTunnelNeedsALiveSandbox(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox()
	at := "/sandbox/" + box + "/tunnels"
	c.Do("POST", "/sandbox/"+box+"/pause", nil).Want(200)
	c.Do("POST", at, object{"port": 80}).Want(201) // a paused one is woken by its callers
	c.Do("DELETE", "/sandbox/"+box, nil).Want(200)
	c.Do("POST", at, object{"port": 80}).Refused(409, "sandbox_not_running")
	c.Do("POST", "/sandbox/sbx_nowhere/tunnels", object{"port": 80}).Refused(404, "sandbox_not_found")
	c.Do("GET", "/sandbox/sbx_nowhere/tunnels", nil).Refused(404, "sandbox_not_found")

	// One that is being made, and one whose time is up though nobody has said so yet.
	waits := make(chan struct{})
	w.Runner.Lock(func() { w.Runner.CreateWaits = waits })
	seen := make(chan string, 1)
	w.Runner.Lock(func() { w.Runner.OnCreate = func(s sandboxes.Spec) { seen <- s.ID } })
	var made sync.WaitGroup
	made.Go(func() { c.Do("POST", "/sandbox/create", object{"template": "tiny"}).Want(201) })
	c.Do("POST", "/sandbox/"+<-seen+"/tunnels", object{"port": 80}).Refused(409, "sandbox_not_running")
	close(waits)
	made.Wait()
	w.Runner.Lock(func() { w.Runner.OnCreate = nil })
	late := c.Sandbox()
	b, err := w.Store.Sandbox(t.Context(), c.Org, late)
	if err != nil {
		t.Fatal(err)
	}
	_, err = w.Store.Change(t.Context(), principal(c), func(tx *store.Tx) error {
		b.ExpiresAt = tx.Now()
		if _, err := tx.UpdateSandbox(t.Context(), b); err != nil {
			return err
		}
		return tx.Record(t.Context(), audit.SandboxExtend, b.ID, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Do("POST", "/sandbox/"+late+"/tunnels", object{"port": 80}).Refused(409, "sandbox_not_running")
}

func TestTunnelsOfASandboxAreBounded(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	at := "/sandbox/" + c.Sandbox() + "/tunnels"
	var wait sync.WaitGroup
	var mu sync.Mutex
	count := map[int]int{}
	for range 40 {
		wait.Go(func() {
			a := c.Do("POST", at, object{"port": 80})
			mu.Lock()
			defer mu.Unlock()
			count[a.Status]++
		})
	}
	wait.Wait()
	if count[201] != 32 || count[409] != 8 {
		t.Errorf("statuses %v, want 32 made", count)
	}
	c.Do("POST", at, object{"port": 80}).Refused(409, "too_many_tunnels")
}

// TestSilentIngressIsNoHang: a tunnel is made although ingress says nothing, as after its start, before it has its keys.
func TestSilentIngressIsNoHang(t *testing.T) {
	w := apitest.New(t, func(c *api.Config) { c.Applied = time.Millisecond })
	c := w.Org("one")
	at := "/sandbox/" + c.Sandbox() + "/tunnels"
	w.Routes.Silent(true)
	a := c.Do("POST", at, object{"port": 80}).Want(201)
	if !strings.Contains(w.Log.String(), "not at ingress yet") || !strings.Contains(w.Log.String(), a.String("id")) {
		t.Error("the log says nothing of it")
	}
	c.Do("DELETE", at+"/"+a.String("id"), nil).Refused(504, "not_applied")
	if got := c.Do("GET", at, nil).Want(200); got.At("tunnels.0") != nil {
		t.Errorf("it is not deleted: %s", got.Body)
	}
	w.Routes.Silent(false)
	a = c.Do("POST", at, object{"port": 80}).Want(201)
	c.Do("DELETE", at+"/"+a.String("id"), nil).Want(200)
}

// TestAnswerWaitsForIngress: whoever calls through a tunnel after a sandbox was said to be paused, to run or to be gone must meet
// it as that.
func TestAnswerWaitsForIngress(t *testing.T) {
	w := apitest.New(t, func(c *api.Config) { c.Applied = time.Millisecond })
	c := w.Org("one")
	box := c.Sandbox()
	for _, step := range []struct{ method, path string }{
		{"POST", "/sandbox/" + box + "/pause"}, {"POST", "/sandbox/" + box + "/resume"}, {"POST", "/sandbox/" + box + "/stop"},
	} {
		before := w.Routes.Applied()
		c.Do(step.method, step.path, nil).Want(200)
		if now, err := w.Store.Revision(t.Context()); err != nil || w.Routes.Applied() != now || now == before {
			t.Errorf("%s: answered when ingress had revision %d; it was %d and is %d (%v)", step.path, w.Routes.Applied(), before, now, err)
		}
	}
	// With a silent ingress it is done and answered all the same.
	second := c.Sandbox()
	w.Routes.Silent(true)
	if a := c.Do("POST", "/sandbox/"+second+"/pause", nil).Want(200); a.String("status") != "paused" || !strings.Contains(w.Log.String(), "ingress does not know of a change yet") {
		t.Errorf("%s", a.Body)
	}
	c.Do("DELETE", "/sandbox/"+second, nil).Want(200)
}

func TestTunnelsWithoutADomain(t *testing.T) {
	w := apitest.New(t, func(c *api.Config) { c.Tunnels = api.Tunnels{} })
	c := w.Org("one")
	at := "/sandbox/" + c.Sandbox() + "/tunnels"
	c.Do("POST", at, object{"port": 80}).Refused(503, "no_tunnels")
}

func TestTunnelURLOnTheUsualPort(t *testing.T) {
	w := apitest.New(t, func(c *api.Config) { c.Tunnels.Port, c.Tunnels.Plain = "", false })
	c := w.Org("one")
	a := c.Do("POST", "/sandbox/"+c.Sandbox()+"/tunnels", object{"port": 3000}).Want(201)
	if !regexp.MustCompile(`^https://[a-z2-7]{16}-3000\.tunnel\.localhost$`).MatchString(a.String("url")) || a.At("http_url") != nil {
		t.Errorf("%s", a.Body)
	}
}

// TestPublicTunnelAndGrantExcludeEachOther: through a public tunnel anybody could have the application use the secret.
func TestPublicTunnelAndGrantExcludeEachOther(t *testing.T) {
	w := apitest.New(t)
	c, other := w.Org("one"), w.Org("two")
	c.Do("PUT", "/policies/web", document()).Want(200)
	plain, web := c.Sandbox(), c.Sandbox(object{"policy": "web"})
	open := func(box string, public bool) *apitest.Answer {
		return c.Do("POST", "/sandbox/"+box+"/tunnels", object{"port": 80, "public": public})
	}
	secret(c, "key")
	open(plain, true).Want(201) // a secret without a grant goes nowhere
	first := open(web, true).Want(201)

	// The tunnel was first.
	c.Do("PUT", "/secrets/key/grants", grants(grant("api.test"))).Refused(409, "public_with_grant", "body.grants")
	c.Do("PUT", "/secrets/key/grants", grants(grant("api.test", with("policies", []string{"web"})))).Refused(409, "public_with_grant", "body.grants")
	c.Do("PUT", "/secrets/key/grants", grants(grant("api.test", with("policies", []string{"another"})))).Want(200)
	c.Do("PUT", "/secrets/key/grants", grants()).Want(200)
	c.Do("DELETE", "/sandbox/"+web+"/tunnels/"+first.String("id"), nil).Want(200)
	c.Do("PUT", "/secrets/key/grants", grants(grant("api.test", with("policies", []string{"web"})))).Want(200)

	// The grant was first.
	open(web, true).Refused(409, "public_with_grant", "body.public")
	open(web, false).Want(201)  // who calls has a token
	open(plain, true).Want(201) // no grant is for it
	// Nor by a change of its policy.
	c.Do("PUT", "/sandbox/"+plain+"/policy", object{"policy": "web"}).Refused(409, "public_with_grant", "body.policy")
	c.Do("PUT", "/policies/other", document()).Want(200)
	c.Do("PUT", "/sandbox/"+plain+"/policy", object{"policy": "other"}).Want(200)
	c.Do("PUT", "/sandbox/"+plain+"/policy", object{"policy": nil}).Want(200)
	secret(other, "key")
	other.Do("PUT", "/secrets/key/grants", grants(grant("api.test"))).Want(200) // concerns nobody here
	open(plain, true).Want(201)

	c.Do("DELETE", "/sandbox/"+plain, nil).Want(200) // with its public tunnels
	c.Do("PUT", "/secrets/key/grants", grants(grant("api.test"))).Want(200)
	open(c.Sandbox(), true).Refused(409, "public_with_grant", "body.public")
	open(c.Sandbox(), false).Want(201)
}
