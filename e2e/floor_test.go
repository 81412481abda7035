package e2e

import (
	"strings"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// auditOf lists the entries of the product's org whose action begins so, the newest first.
func auditOf(t *testing.T, p *lab.Product, prefix string) (actions []string, text string) {
	t.Helper()
	answer, err := p.API("GET", "/audit?limit=50", nil)
	var page struct {
		Events []struct {
			Action   string `json:"action"`
			Resource string `json:"resource"`
		} `json:"events"`
	}
	if err != nil || answer.Status != 200 || answer.Into(&page) != nil {
		t.Fatalf("the audit log: %v %v", answer, err)
	}
	for _, e := range page.Events {
		if strings.HasPrefix(e.Action, prefix) {
			actions = append(actions, e.Action+" "+e.Resource)
		}
	}
	return actions, string(answer.Body)
}

// TestFloorOpensByThePlatformAlone: a private host is closed to every org, is opened to one while it runs, and closes again under what lives.
func TestFloorOpensByThePlatformAlone(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	org, key := registered(t, p)
	other := *p
	theirs := &other
	theirs.Info.APIKey = key
	private := l.Addr("private.test")
	named := allow("lan", "private.test")
	ceiling(t, p, named)
	ceiling(t, theirs, named)
	ours, b := armed(t, p), armed(t, theirs)
	reaches := func(when string, who *box, want bool) {
		t.Helper()
		arrived := len(l.Web.Requests("private.test"))
		open, said := who.hostile("tls", "private.test:443", "private.test", "private.test", "/")
		if got := len(l.Web.Requests("private.test")) - arrived; open != want || got > 0 != want {
			t.Errorf("%s: %s, %d requests arrived; open should be %v", when, said, got, want)
		}
	}
	shut := func(when string) {
		t.Helper()
		if err := l.Capture.Sync(); err != nil {
			t.Error(err)
		}
		if err := l.Capture.Quiet(private); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	floorSoft := func(d decision) bool {
		return d.Host == "private.test" && d.Verdict == "deny" && d.Reason == "floor_soft"
	}

	reaches("before", ours, false)
	reaches("before, by another org", b, false)
	b.decided("denies the private host", floorSoft)
	// No org opens it, for itself least of all.
	ask := map[string]any{"cidr": private.String() + "/32", "ports": []int{443}, "orgs": []string{org}, "note": "their own host"}
	for route, body := range map[string]any{"GET /platform/floor-exemptions": nil, "POST /platform/floor-exemptions": ask, "POST /api-keys": map[string]any{"name": "x", "scopes": []string{"platform"}}} {
		method, path, _ := strings.Cut(route, " ")
		if answer, err := theirs.API(method, path, body); err != nil || answer.Status != 403 {
			t.Errorf("an org's %s: %v %v", route, answer, err)
		}
	}
	for _, hard := range []string{"127.0.0.0/8", "169.254.169.254/32", "0.0.0.0/0", "10.0.0.0/8"} {
		if answer, err := p.API("POST", "/platform/floor-exemptions", map[string]any{"cidr": hard, "orgs": []string{"*"}}); err != nil || answer.Status != 422 {
			t.Errorf("opening %s: %v %v", hard, answer, err)
		}
	}
	reaches("after an org's tries", b, false)
	shut("before it is opened")

	var made struct {
		ID string `json:"id"`
	}
	call(t, p, "POST", "/platform/floor-exemptions?wait=applied", ask, 201, &made)
	reaches("open to them", b, true)
	reaches("open to others", ours, false)
	ceiling(t, theirs, map[string]any{"id": "all", "action": "allow", "any": true})
	reaches("under a rule that names nothing", b, false)
	ceiling(t, theirs, named)

	// What lives ends with it, within two seconds, and what is elsewhere goes on.
	ceiling(t, theirs, named, allow("good", "good.test"))
	b.download("private.test", "inside")
	b.download("good.test", "outside")
	b.goesOn("download from the private host", "inside", 64<<10)
	b.goesOn("download beside it", "outside", 64<<10)
	if r := p.CLI("floor", "revoke", made.ID); r.Code != 0 {
		t.Fatalf("revoking it: %v", r)
	}
	answered := time.Now()
	b.ends("download from the private host", "inside")
	b.decided("closes the download", func(d decision) bool { return d.Host == "private.test" && d.Closed && d.Error == "floor_soft" })
	if err := l.Capture.Sync(); err != nil {
		t.Error(err)
	}
	if late := l.Capture.Seen(func(p lab.Packet) bool {
		return p.FromGate && p.Dst == private && p.At.After(answered.Add(2*time.Second))
	}); len(late) > 0 {
		t.Errorf("%d packets went to the private host later than two seconds after", len(late))
	}
	n, _ := b.drained("outside")
	b.goesOn("the download beside it", "outside", n)
	if err := l.Capture.Forget(); err != nil {
		t.Fatal(err)
	}
	reaches("revoked", b, false)
	shut("after it was revoked")

	// One with an end ends by itself.
	r := p.CLI("floor", "exempt", private.String()+"/32", "--org", org, "--for", "8s")
	if r.Code != 0 {
		t.Fatalf("for a while: %v", r)
	}
	ending := strings.TrimSpace(r.Stdout)
	b.download("private.test", "while")
	b.goesOn("download for a while", "while", 0)
	b.ends("download whose exemption ends", "while")
	if err := lab.Await(10*time.Second, "the end in the audit log", func() bool {
		actions, _ := auditOf(t, p, "floor.")
		return len(actions) > 0 && actions[0] == "floor.expire "+ending
	}); err != nil {
		t.Error(err)
	}
	if err := l.Capture.Forget(); err != nil {
		t.Fatal(err)
	}
	reaches("at its end", b, false)
	shut("after its end")
	actions, _ := auditOf(t, p, "floor.")
	if got, want := strings.Join(actions, "; "), "floor.expire "+ending+"; floor.exempt "+ending+"; floor.revoke "+made.ID+"; floor.exempt "+made.ID; got != want {
		t.Errorf("the audit log has %s, want %s", got, want)
	}
	if actions, text := auditOf(t, theirs, "floor."); len(actions) != 0 || strings.Contains(text, made.ID) {
		t.Errorf("another org's audit log: %s", text)
	}
	if list := p.CLI("floor", "list"); list.Code != 0 || strings.Contains(list.Stdout, "flx_") || strings.Count(list.Stdout, "(configuration)") != 2 {
		t.Errorf("what is left: %v", list)
	}
}
