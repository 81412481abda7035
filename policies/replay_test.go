package policies

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func seen(box string, minute int, allowed bool, reason Reason, r Request) Observation {
	r.Now = testNow
	return Observation{Time: testNow.Add(time.Duration(minute) * time.Minute), Sandbox: box, Decision: fmt.Sprintf("dec_%s_%d", box, minute), Allowed: allowed, Reason: reason, Request: r}
}

func TestReplay(t *testing.T) {
	draft := compileText(t, `{"rules": [
		{"id": "api", "action": "allow", "hosts": ["api.test"], "tls": "inspect", "paths": ["/v1/**"]},
		{"id": "web", "action": "allow", "hosts": ["*.web.test"]},
		{"id": "bad", "action": "deny", "hosts": ["bad.web.test"]}]}`)
	observed := []Observation{
		seen("a", 1, true, ReasonAllowed, request("api.test", "GET", "/v1/x")),                                                          // same
		seen("a", 2, true, ReasonAllowed, request("api.test", "GET", "/v2/x")),                                                          // newly denied
		seen("b", 5, true, ReasonAllowed, request("api.test", "GET", "/v2/x")),                                                          // again
		seen("a", 3, true, ReasonNoRule, connect("bad.web.test", 443, HTTPS)),                                                           // let through by a policy that watches; denied
		seen("a", 4, false, ReasonNoRule, connect("x.web.test", 443, HTTPS)),                                                            // newly allowed
		seen("a", 6, false, ReasonNoRule, byName("x.web.test")),                                                                         // newly allowed
		seen("a", 7, false, ReasonRuleDenied, connect("none.test", 443, HTTPS)),                                                         // same
		seen("a", 8, false, ReasonFloorHard, connectAddr("127.0.0.1", 443, HTTPS)),                                                      // not a policy's
		seen("a", 9, false, ReasonDialFailed, connect("x.web.test", 443, HTTPS)),                                                        // not a policy's
		seen("a", 10, true, ReasonAllowed, Request{Stage: StageRequest, Host: "api.test", Port: 443, Protocol: HTTPS, Method: "GET"}),   // its path was not kept
		seen("a", 11, true, ReasonAllowed, Request{Stage: StageRequest, Host: "x.web.test", Port: 443, Protocol: HTTPS, Method: "GET"}), // nor here, where it does not matter
		seen("a", 12, true, ReasonAllowed, Request{Stage: StageRequest, Host: "none.test", Port: 443, Protocol: HTTPS, Method: "GET"}),  // nor here; denied whatever it was
	}
	cut := seen("a", 13, true, ReasonAllowed, request("api.test", "GET", "/v1"))
	cut.Partial = true // could have been anything below
	res := Replay(draft, append(observed, cut))
	if res.Same != 3 || res.Unjudged != 4 || res.Denied != 4 || res.Allowed != 2 || res.Omitted != 0 {
		t.Errorf("%+v", res)
	}
	if len(res.NewlyDenied) != 3 || len(res.NewlyAllowed) != 2 {
		t.Fatalf("%+v", res)
	}
	first := res.NewlyDenied[0]
	if first.Times != 2 || first.Sandboxes != 2 || first.Request.Path != "/v2/x" || first.Decision != "dec_b_5" || !first.FirstSeen.Equal(observed[1].Time) || !first.LastSeen.Equal(observed[2].Time) || first.Verdict.Reason != ReasonNoRule {
		t.Errorf("%+v", first)
	}
}

// However much is added, only so many rows are kept; what has none is counted.
func TestReplayIsBounded(t *testing.T) {
	p := NewReplayer(10)
	draft := compileText(t, `{"rules": []}`)
	for i := range 100 {
		p.Add(draft, seen("a", i, true, ReasonAllowed, connect(fmt.Sprintf("h%d.test", i%20), 443, HTTPS)))
	}
	if res := p.Result(); len(res.NewlyDenied) != 10 || res.Denied != 100 || res.Omitted != 50 || len(p.kept) != 10 {
		t.Errorf("%+v", res)
	}
}

// Replaying the decisions of a snapshot under itself finds nothing new, and leaves the snapshot as it was.
func TestReplayChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDocument(t)
		s, err := Compile(Layer{Name: "a", Document: d})
		if err != nil {
			t.Fatal(err)
		}
		var observed []Observation
		for range 8 {
			r := drawRequest(t)
			r.Now = testNow
			v := s.Evaluate(&r)
			observed = append(observed, Observation{Time: testNow, Sandbox: "a", Allowed: v.Allowed(), Reason: v.Reason, Request: r})
		}
		kept := append([]Observation{}, observed...)
		if res := Replay(s, observed); res.Denied+res.Allowed != 0 || res.Same+res.Unjudged != 8 {
			t.Fatalf("%+v", res)
		}
		for i, o := range observed {
			if o != kept[i] {
				t.Fatalf("changed: %+v", o)
			}
			if v := s.Evaluate(&o.Request); v.Allowed() != o.Allowed || v.Reason != o.Reason {
				t.Fatalf("%+v is now %+v", o, v)
			}
		}
	})
}
