package e2e

import (
	"strings"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// TestCanaryProvesDenial: by itself the product shows that a sandbox which may reach nothing reaches nothing, says when, and says
// so no more once it cannot look.
func TestCanaryProvesDenial(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, lab.Options{})
	p := l.StartProduct(t, lab.ProductOptions{Config: small + "canary: {every: 1s}\n"})
	type proof struct {
		Holds    bool      `json:"holds"`
		ProvenAt time.Time `json:"proven_at"`
		TriedAt  time.Time `json:"tried_at"`
		Error    string    `json:"error"`
		Layers   []struct {
			Layer    string    `json:"layer"`
			Holds    bool      `json:"holds"`
			ProvenAt time.Time `json:"proven_at"`
			Detail   string    `json:"detail"`
		} `json:"layers"`
	}
	now := func() (v proof) { call(t, p, "GET", "/health/denial", nil, 200, &v); return v }
	if err := lab.Await(time.Minute, "denial to be proven", func() bool { return now().Holds }); err != nil {
		t.Fatalf("%v: %+v\n%s", err, now(), p.Log(40))
	}
	first := now()
	for _, layer := range first.Layers {
		if !layer.Holds || layer.ProvenAt.IsZero() {
			t.Errorf("%+v", layer)
		}
	}
	if err := lab.Await(time.Minute, "it to be proven again", func() bool { return now().ProvenAt.After(first.ProvenAt) }); err != nil {
		t.Error(err)
	}
	if err := l.Capture.Only(); err != nil {
		t.Errorf("the canary's tries: %v", err)
	}
	if r := p.CLI("canary"); r.Code != 0 || !strings.Contains(r.Stdout, "kernel") {
		t.Errorf("by command line: %v", r)
	}
	metrics, err := p.API("GET", "/metrics", nil)
	if err != nil || metrics.Status != 200 || !strings.Contains(string(metrics.Body), `portreeve_denial_holds{layer="proxy"} 1`) {
		t.Errorf("metrics: %v %v", metrics, err)
	}
	if a, err := p.Call("", "GET", "/metrics", nil); err != nil || a.Status != 401 {
		t.Errorf("metrics without a key: %v %v", a, err)
	}
	var list struct{ Sandboxes []any }
	if call(t, p, "GET", "/sandboxes", nil, 200, &list); len(list.Sandboxes) != 0 {
		t.Errorf("the canary is in somebody's list: %v", list)
	}
}
