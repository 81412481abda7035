package policies

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// labFloor is the built-in floor with the documentation's ranges open, as they play public addresses here.
var labFloor = func() *Floor {
	f, err := NewFloor(FloorConfig{Exempt: []Exemption{
		{CIDR: cidr("203.0.113.0/24"), Orgs: []string{EveryOrg}}, {CIDR: cidr("192.0.2.0/24"), Orgs: []string{EveryOrg}}, {CIDR: cidr("198.51.100.0/24"), Orgs: []string{EveryOrg}},
		{CIDR: cidr("10.1.0.0/16"), Ports: []uint16{5432}, Orgs: []string{"org_1"}},
	}})
	if err != nil {
		panic(err)
	}
	return f
}()

var underLab = ReplayOptions{Floor: labFloor, Org: "org_1"}

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
		seen("a", 8, false, ReasonFloorHard, connectAddr("127.0.0.1", 443, HTTPS)),                                                      // same, as the floor closes it
		seen("a", 9, false, ReasonDialFailed, connect("x.web.test", 443, HTTPS)),                                                        // not a policy's
		seen("a", 10, true, ReasonAllowed, Request{Stage: StageRequest, Host: "api.test", Port: 443, Protocol: HTTPS, Method: "GET"}),   // its path was not kept
		seen("a", 11, true, ReasonAllowed, Request{Stage: StageRequest, Host: "x.web.test", Port: 443, Protocol: HTTPS, Method: "GET"}), // nor here, where it does not matter
		seen("a", 12, true, ReasonAllowed, Request{Stage: StageRequest, Host: "none.test", Port: 443, Protocol: HTTPS, Method: "GET"}),  // nor here; denied whatever it was
	}
	cut := seen("a", 13, true, ReasonAllowed, request("api.test", "GET", "/v1"))
	cut.Partial = true // could have been anything below
	res := Replay(draft, append(observed, cut), underLab)
	if res.Same != 4 || res.Closed != 0 || res.Unjudged != 3 || res.Denied != 4 || res.Allowed != 2 || res.Omitted != 0 {
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

// TestReplayKnowsTheFloor: what the floor closes is newly allowed by no draft, whatever was recorded of it before, and is told where the draft
// allows it in vain. What an exemption opens to the org is judged by the draft.
func TestReplayKnowsTheFloor(t *testing.T) {
	draft := compileText(t, `rules: [{id: net, action: allow, cidrs: [10.0.0.0/8, 11.0.0.0/8], ports: [443, 5432, 25], protocols: [https, tcp]}]`)
	db := connectAddr("10.1.2.3", 5432, TCP)
	observed := []Observation{
		seen("a", 1, false, ReasonNoRule, connectAddr("10.2.0.1", 443, HTTPS)),               // from before the floor was asked first
		seen("b", 2, false, ReasonFloorSoft, connectAddr("10.2.0.1", 443, HTTPS)),            // and since
		seen("a", 3, false, ReasonFloorSoft, connectAddr("192.168.0.1", 443, HTTPS)),         // the draft says nothing of it
		seen("a", 4, false, ReasonPort25, connectAddr("11.0.0.1", 25, TCP)),                  // in vain
		seen("a", 5, false, ReasonNoRule, connectAddr("11.0.0.1", 443, HTTPS)),               // newly allowed
		seen("a", 6, false, ReasonNoRule, db),                                                // newly allowed
		seen("a", 7, false, ReasonFloorSoft, db),                                             // newly allowed: exempted since
		seen("a", 8, true, ReasonAllowed, connectAddr("10.3.0.1", 443, HTTPS)),               // exempted then: newly denied
		seen("a", 9, false, ReasonFloorSoft, connect("db.corp.test", 443, HTTPS)),            // an address that a name had: nobody knows
		seen("a", 10, false, ReasonFloorHard, connect("metadata.google.internal", 80, HTTP)), // the same, as far as the record tells
	}
	res := Replay(draft, observed, underLab)
	if res.Allowed != 3 || res.Denied != 1 || res.Same != 4 || res.Closed != 3 || res.Unjudged != 2 {
		t.Errorf("%+v", res)
	}
	told := func(rows []ReplayRow) (out []string) {
		for _, r := range rows {
			out = append(out, fmt.Sprint(r.Request.Address, ":", r.Request.Port, " ", r.Times, " ", r.Verdict.Reason))
		}
		slices.Sort(out)
		return out
	}
	for name, c := range map[string]struct {
		rows []ReplayRow
		want []string
	}{
		"closed":  {res.ClosedByFloor, []string{"10.2.0.1:443 2 floor_soft", "11.0.0.1:25 1 port25"}},
		"allowed": {res.NewlyAllowed, []string{"10.1.2.3:5432 2 allowed", "11.0.0.1:443 1 allowed"}},
		"denied":  {res.NewlyDenied, []string{"10.3.0.1:443 1 floor_soft"}},
	} {
		if got := told(c.rows); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if other := Replay(draft, observed, ReplayOptions{Floor: labFloor, Org: "org_2"}); other.Allowed != 1 || other.Closed != 5 {
		t.Errorf("an org without the exemption: %+v", other)
	}
	if none := Replay(draft, observed, ReplayOptions{Org: "org_1"}); none.Allowed != 0 {
		t.Errorf("without a floor: %+v", none)
	}
}

// However much is added, only so many rows are kept; what has none is counted.
func TestReplayIsBounded(t *testing.T) {
	p := NewReplayer(ReplayOptions{Floor: labFloor, Org: "org_1", Rows: 10})
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
			v := labFloor.Evaluate("org_1", s, &r)
			observed = append(observed, Observation{Time: testNow, Sandbox: "a", Allowed: v.Allowed(), Reason: v.Reason, Request: r})
		}
		kept := append([]Observation{}, observed...)
		if res := Replay(s, observed, underLab); res.Denied+res.Allowed != 0 || res.Same+res.Unjudged != 8 {
			t.Fatalf("%+v", res)
		}
		for i, o := range observed {
			if o != kept[i] {
				t.Fatalf("changed: %+v", o)
			}
			if v := labFloor.Evaluate("org_1", s, &o.Request); v.Allowed() != o.Allowed || v.Reason != o.Reason {
				t.Fatalf("%+v is now %+v", o, v)
			}
		}
	})
}
