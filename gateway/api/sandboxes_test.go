package api_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/sandboxes"
)

func TestSandboxLife(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	a := c.Do("POST", "/sandbox/create", object{"cpus": "500m", "memory": "256Mi", "timeout_seconds": 300, "env": object{"A": "b"}, "template": "base", "isolation": "container",
		"workspace": object{"persistence": "ephemeral", "size": "64Mi"}}).Want(201)
	id := a.String("sandbox_id")
	if id != a.String("id") || !strings.HasPrefix(id, "sbx_") || a.String("status") != "running" || a.String("addr") == "" || a.String("addr") != a.String("pod_ip") || a.String("runsc_id") == "" ||
		a.At("incarnation") != 1.0 || a.At("generation") != 1.0 || a.String("policy") != "" || a.At("policy_version") != 0.0 || a.String("org_id") != c.Org || a.At("startup_metrics.total_ms") == nil || a.String("isolation") != "gvisor" {
		t.Errorf("%s", a.Body)
	}
	spec, ok := w.Runner.Spec(id)
	if !ok || spec.MilliCPU != 500 || spec.MemoryBytes != 256<<20 || spec.WorkspaceBytes != 64<<20 || spec.Env["A"] != "b" || spec.Template != "base" {
		t.Errorf("the node was told %+v", spec)
	}
	if got := c.Do("GET", "/sandbox/"+id, nil).Want(200); string(got.Body) != string(a.Body) {
		t.Errorf("created %s, got %s", a.Body, got.Body)
	}
	if got := c.Do("GET", "/sandboxes", nil).Want(200); got.String("sandboxes.0.id") != id || got.At("sandboxes.1") != nil {
		t.Errorf("%s", got.Body)
	}
	if got := c.Do("POST", "/sandbox/"+id+"/pause", nil).Want(200); got.String("status") != "paused" {
		t.Errorf("%s", got.Body)
	}
	c.Do("POST", "/sandbox/"+id+"/execute", object{"command": "true"}).Refused(409, "sandbox_not_running")
	if got := c.Do("POST", "/sandbox/"+id+"/resume", nil).Want(200); got.String("status") != "running" || got.At("generation") != 2.0 {
		t.Errorf("%s", got.Body)
	}
	if got := c.Do("POST", "/sandbox/"+id+"/extend", object{"additional_seconds": 60}).Want(200); got.String("expires_at") == a.String("expires_at") {
		t.Errorf("%s", got.Body)
	}
	c.Do("POST", "/sandbox/"+id+"/extend", object{"additional_seconds": 86400}).Refused(422, "invalid_request", "body.additional_seconds")
	if got := c.Do("POST", "/sandbox/"+id+"/stop", nil).Want(200); got.At("success") != true {
		t.Errorf("%s", got.Body)
	}
	c.Do("DELETE", "/sandbox/"+id, nil).Want(200) // once more
	if got := c.Do("GET", "/sandbox/"+id+"/status", nil).Want(200); got.String("status") != "terminated" || got.String("reason") != "deleted" || got.String("sandbox_id") != id {
		t.Errorf("%s", got.Body)
	}
	c.Do("POST", "/sandbox/"+id+"/pause", nil).Refused(409, "sandbox_not_running")
	if got := c.Do("GET", "/sandboxes", nil); got.At("sandboxes.0") != nil {
		t.Errorf("ended ones are listed: %s", got.Body)
	}
	if got := c.Do("GET", "/sandboxes?all=true", nil); got.String("sandboxes.0.id") != id {
		t.Errorf("%s", got.Body)
	}
}

func TestCreateDefaults(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	a := c.Do("POST", "/sandbox/create", object{}).Want(201)
	if a.String("cpus") != "2" || a.String("memory") != "2Gi" || a.At("timeout_seconds") != 600.0 || a.String("template") != "base" {
		t.Errorf("%s", a.Body)
	}
	spec, _ := w.Runner.Spec(a.String("id"))
	if spec.MilliCPU != 2000 || spec.MemoryBytes != 2<<30 || time.Until(spec.End) < 590*time.Second || time.Until(spec.End) > 600*time.Second {
		t.Errorf("%+v", spec)
	}
}

func TestCreateRefusesWhatItCantDo(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	for body, location := range map[string]string{
		`{"cpus":"two"}`: "body.cpus", `{"cpus":2}`: "body.cpus", `{"cpus":"0"}`: "body.cpus", `{"cpus":"9"}`: "body.cpus", `{"cpus":"-1"}`: "body.cpus", `{"cpus":"1."}`: "body.cpus",
		`{"memory":"2"}`: "body.memory", `{"memory":"2Xi"}`: "body.memory", `{"memory":"9999999999Gi"}`: "body.memory", `{"memory":"64Gi"}`: "body.memory", `{"memory":"-2Gi"}`: "body.memory",
		`{"timeout_seconds":59}`: "body.timeout_seconds", `{"timeout_seconds":86401}`: "body.timeout_seconds", `{"timeout_seconds":"600"}`: "body.timeout_seconds", `{"timeout_seconds":60.5}`: "body.timeout_seconds",
		`{"template":"rust"}`: "body.template", `{"isolation":"microvm"}`: "body.isolation", `{"isolation":"kata"}`: "body.isolation",
		`{"image":"evil"}`: "body.image", `{"gpu":{"count":1}}`: "body.gpu", `{"workspace":{"persistence":"persistent"}}`: "body.workspace.persistence", `{"workspace":{"size":"x"}}`: "body.workspace.size",
		`{"env":{"A":1}}`: "body.env.A", `{"env":{"A=B":"1"}}`: "body.env", `{"env":["A"]}`: "body.env", `[]`: "body",
	} {
		c.Do("POST", "/sandbox/create", body).Refused(422, "invalid_request", location)
	}
	c.Do("POST", "/sandbox/create", `{"cpus":`).Refused(400, "bad_request", "body")
	c.Do("POST", "/sandbox/create", ``).Refused(400, "bad_request")
	if log := w.Runner.Log(); len(log) != 0 {
		t.Errorf("the node was told %v", log)
	}
	if a := c.Do("GET", "/sandboxes?all=true", nil); a.At("sandboxes.0") != nil {
		t.Errorf("something was made: %s", a.Body)
	}
	for _, body := range []string{`{"cpus":"8","memory":"16Mi","timeout_seconds":60}`, `{"cpus":"0.5","memory":"8Gi","timeout_seconds":86400}`, `{"memory":"128M","cpus":"1m"}`} {
		c.Do("POST", "/sandbox/create", body).Want(201)
	}
}

// TestOwnListOnlyNarrows gives sandboxes a document of their own.
func TestOwnListOnlyNarrows(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	c.Do("PUT", "/settings/egress", document(rule("a", "a.test"), rule("b", "b.test"), object{"id": "c", "action": "allow", "hosts": []string{"c.test"}, "tls": "inspect"})).Want(200)
	a := c.Do("POST", "/sandbox/create", object{"template": "tiny", "egress": document(rule("mine", "a.test"), rule("more", "evil.test"), rule("open", "c.test"))}).Want(201)
	box, open := a.String("id"), c.Sandbox()
	if a.String("egress.rules.0.id") != "mine" || a.At("egress.rules.0.ports.0") != 443.0 {
		t.Errorf("the answer does not show its normal form: %s", a.Body)
	}
	if got := c.Do("GET", "/sandbox/"+box, nil).Want(200); string(got.Body) != string(a.Body) {
		t.Errorf("created %s, got %s", a.Body, got.Body)
	}
	if got := c.Do("GET", "/sandbox/"+open, nil); got.At("egress") != nil {
		t.Errorf("%s", got.Body)
	}
	f, err := w.Store.FeedState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range f.Orgs[0].Sandboxes {
		if (len(b.Own) > 0) != (b.Sandbox == box) {
			t.Errorf("the feed has %s for %s", b.Own, b.Sandbox)
		}
	}
	for host, want := range map[string]string{"a.test": "allow", "b.test": "deny", "evil.test": "deny"} {
		if got := c.Do("POST", "/policies/check", object{"host": host, "sandbox": box}).Want(200); got.String("verdict") != want {
			t.Errorf("%s: %s", host, got.Body)
		}
	}
	if got := c.Do("POST", "/policies/check", object{"host": "b.test", "sandbox": open}).Want(200); got.String("verdict") != "allow" {
		t.Errorf("a sandbox without a list: %s", got.Body)
	}
	// Its own list lets c.test through unopened, the ceiling does not.
	if got := c.Do("POST", "/policies/check", object{"url": "https://c.test/", "sandbox": box}).Want(200); got.String("verdict") != "allow" || !strings.Contains(string(got.Body), "inspect") {
		t.Errorf("%s", got.Body)
	}
	none := c.Sandbox(object{"egress": document()})
	if got := c.Do("POST", "/policies/check", object{"host": "a.test", "sandbox": none}).Want(200); got.String("verdict") != "deny" {
		t.Errorf("an empty list: %s", got.Body)
	}
	for body, location := range map[string]string{
		`{"rules":[{"id":"a","action":"allow","hosts":["*.com"]}]}`: "body.egress.rules[0].hosts[0]", `{"rulez":[]}`: "body.egress.rulez", `[]`: "body.egress", `"x"`: "body.egress", `null`: "body.egress", `{}`: "body.egress.rules",
		`{"rules":[{"id":"a","action":"allow","hosts":["a.test"],"ports":[65536]}]}`: "body.egress.rules[0].ports[0]",
	} {
		c.Do("POST", "/sandbox/create", `{"template":"tiny","egress":`+body+`}`).Refused(422, "invalid_policy", location)
	}
}

func TestFailedStartIsReported(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	w.Runner.Lock(func() { w.Runner.FailCreate = errors.New("runsc said something secret") })
	a := c.Do("POST", "/sandbox/create", object{"template": "tiny"}).Refused(503, "node_unavailable")
	if strings.Contains(string(a.Body), "runsc said") {
		t.Errorf("the cause is in the answer: %s", a.Body)
	}
	if !strings.Contains(w.Log.String(), "runsc said") {
		t.Error("the cause is not in the log")
	}
	got := c.Do("GET", "/sandboxes?all=true", nil)
	if got.String("sandboxes.0.status") != "error" || got.String("sandboxes.0.reason") != "node_unavailable" || !strings.Contains(string(a.Body), got.String("sandboxes.0.id")) {
		t.Errorf("%s", got.Body)
	}
}

func TestOutOfMemoryIsReportedAsThat(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	id := c.Sandbox()
	// The connection breaks first, and the node says why a moment later.
	w.Guest.Break(errors.New("connection reset"))
	var wait sync.WaitGroup
	wait.Go(func() {
		if err := w.Sandboxes.HandleEvent(t.Context(), sandboxes.Event{Sandbox: id, Kind: sandboxes.OOM, Incarnation: 1}); err != nil {
			t.Error(err)
		}
	})
	c.Do("POST", "/sandbox/"+id+"/execute", object{"command": "true"}).Refused(409, "out_of_memory")
	wait.Wait()
	if a := c.Do("GET", "/sandbox/"+id, nil); a.String("status") != "error" || a.String("reason") != "out_of_memory" {
		t.Errorf("%s", a.Body)
	}
	c.Do("GET", "/sandbox/"+id+"/files?path=a", nil).Refused(409, "out_of_memory")
	c.Do("POST", "/sandbox/"+id+"/resume", nil).Refused(409, "out_of_memory")
}

func TestLimitOfAnOrg(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	w.Sandboxes.Limit = 2
	var wait sync.WaitGroup
	statuses := make([]int, 5)
	for i := range statuses {
		wait.Go(func() { statuses[i] = c.Do("POST", "/sandbox/create", object{"template": "tiny"}).Status })
	}
	wait.Wait()
	if n := strings.Count(fmt.Sprint(statuses), "201"); n != 2 || strings.Count(fmt.Sprint(statuses), "409") != 3 {
		t.Errorf("statuses %v with a limit of 2", statuses)
	}
	c.Do("POST", "/sandbox/create", object{"template": "tiny"}).Refused(409, "limit_reached")
}
