package e2e

import (
	"strings"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// rests is how long an address is nobody's after everything of its last sandbox's is closed.
const rests = 120 * time.Second

// TestAddressRestsBetweenSandboxes fills a range of eight pairs. The address of one that held a connection is nobody's for two
// minutes after its end; then it is the next sandbox's, with verdicts of its own and nothing of the last one's.
func TestAddressRestsBetweenSandboxes(t *testing.T) {
	t.Parallel()
	const api = "tls api.test:443 api.test api.test /"
	l := lab.Start(t, lab.Options{})
	p := l.StartProduct(t, lab.ProductOptions{Config: small + "  address_range: 10.200.0.0/28\n"})
	echo := allow("echo", "tcp.test", "ports", []int{7}, "protocols", []string{"tcp"})
	ceiling(t, p, allow("good", "good.test"), allow("api", "api.test"), echo)
	call(t, p, "PUT", "/policies/last?wait=applied", map[string]any{"rules": []any{allow("good", "good.test"), echo}}, 200, nil)
	call(t, p, "PUT", "/policies/next?wait=applied", map[string]any{"rules": []any{allow("api", "api.test")}}, 200, nil)

	last, neighbour := armed(t, p, "policy", "last"), armed(t, p, "policy", "last")
	if !last.reaches(good) || last.reaches(api) {
		t.Fatal("the policy of the last sandbox does not hold")
	}
	_, said := last.hostile("resolve", "good.test")
	named := strings.TrimPrefix(said, "ok ")
	last.background("/workspace/hostile hold tcp.test:7")
	if err := lab.Await(10*time.Second, "connection that is held", func() bool { return l.TCP.Connections() == 1 }); err != nil {
		t.Fatal(err)
	}
	for range 6 {
		sandbox(t, p, "memory", "64Mi")
	}
	body := map[string]any{"template": "tiny", "memory": "256Mi", "cpus": "1", "policy": "next"}
	if answer, err := p.API("POST", "/sandbox/create", body); err != nil || answer.Status < 500 {
		t.Fatalf("a ninth sandbox in a range of eight: %v %v", answer, err)
	}

	addr, before, start := last.view().Addr, len(last.decisions()), time.Now()
	call(t, p, "DELETE", "/sandbox/"+last.ID, nil, 200, nil)
	if err := lab.Await(5*time.Second, "end of its connection", func() bool { return l.TCP.Connections() == 0 }); err != nil {
		t.Fatal(err)
	}
	closed := time.Now()
	next := nextAt(t, p, body)
	if took := time.Since(start); took < rests {
		t.Errorf("its address was given out after %v", took)
	}
	if v := next.view(); v.Addr != addr {
		t.Errorf("the next one got %s, and %s alone was free", v.Addr, addr)
	}
	if flows := next.flows(); len(flows) != 0 {
		t.Errorf("it began with %+v", flows)
	}
	next.arm()
	if next.reaches(good) || !next.reaches(api) {
		t.Error("its own policy does not hold")
	}
	if next.reaches("tls " + named + ":443 good.test good.test /") {
		t.Error("it reached good.test at the address that stood for that name before")
	}
	if through, _ := next.hostile("tcp", "tcp.test:7"); through {
		t.Error("it reached what only the last one might")
	}
	if !neighbour.reaches(good) {
		t.Error("a sandbox under the last one's policy does not reach good.test")
	}
	for _, d := range next.decisions() {
		if d.Verdict == "allow" && d.Host != "api.test" {
			t.Errorf("it was allowed %+v", d)
		}
	}
	var page struct {
		Decisions []decision `json:"decisions"`
	}
	call(t, p, "GET", "/decisions?limit=1000&sandbox_id="+last.ID, nil, 200, &page)
	for _, d := range page.Decisions {
		if d.Time.After(closed) {
			t.Errorf("the sandbox that was gone is recorded with %+v; it had %d before", d, before)
		}
	}
	if err := l.Capture.Sync(); err != nil {
		t.Fatal(err)
	}
	if seen := l.Capture.Seen(func(q lab.Packet) bool {
		return q.FromGate && q.SYN && q.Dst == l.TCP.Addr && q.At.After(closed)
	}); len(seen) > 0 {
		t.Errorf("somebody called tcp.test: %v", seen[0])
	}
}

// nextAt makes a sandbox as soon as there is an address for it.
func nextAt(t *testing.T, p *lab.Product, body map[string]any) *box {
	t.Helper()
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for limit := time.After(rests + time.Minute); ; {
		answer, err := p.API("POST", "/sandbox/create", body)
		if err != nil {
			t.Fatal(err)
		}
		if answer.Status == 201 {
			var v view
			if err := answer.Into(&v); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.API("DELETE", "/sandbox/"+v.ID, nil) })
			return &box{t, p, v.ID}
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("no address is free: %v", answer)
		}
	}
}
