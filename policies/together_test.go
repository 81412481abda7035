package policies

import (
	"net/netip"
	"testing"
)

// TestFloorComesBeforeThePolicy: what the floor closes is told as that, whether a rule lacks or not, and may not be asked for; beside it, a
// policy's own word stands.
func TestFloorComesBeforeThePolicy(t *testing.T) {
	f := newFloor(t, FloorConfig{Hard: []netip.Prefix{cidr("10.200.0.0/16")}, Exempt: []Exemption{
		{CIDR: cidr("10.1.0.0/16"), Ports: []uint16{443}, Orgs: []string{"org_1"}}, {CIDR: cidr("11.0.0.9/32"), Ports: []uint16{25}, Orgs: []string{"org_1"}},
	}})
	nothing := compileText(t, `{"rules": []}`)
	named := compileText(t, `rules: [{id: all, action: allow, any: true, ports: [25, 443]}, {id: net, action: allow, cidrs: [10.0.0.0/8, 11.0.0.0/8], ports: [25, 443]}]`)
	unnamed := compileText(t, `rules: [{id: everywhere, action: allow, cidrs: [0.0.0.0/0], ports: [25, 443]}]`)
	mail := func(a string) Request { return connectAddr(a, 25, TCP) }
	for _, c := range []struct {
		name                       string
		r                          Request
		without, named, everywhere Reason
	}{
		{"metadata", connectAddr("169.254.169.254", 443, HTTPS), ReasonFloorHard, ReasonFloorHard, ReasonFloorHard},
		{"metadata, in another form", connectAddr("::ffff:169.254.169.254", 443, HTTPS), ReasonFloorHard, ReasonFloorHard, ReasonFloorHard},
		{"the sandboxes' range", connectAddr("10.200.0.9", 443, HTTPS), ReasonFloorHard, ReasonFloorHard, ReasonFloorHard},
		{"a private address", connectAddr("10.2.0.1", 443, HTTPS), ReasonFloorSoft, ReasonFloorSoft, ReasonFloorSoft},
		{"with an exemption", connectAddr("10.1.0.1", 443, HTTPS), ReasonNoRule, ReasonAllowed, ReasonFloorSoft},
		{"on a port beside it", connectAddr("10.1.0.1", 25, HTTPS), ReasonFloorSoft, ReasonFloorSoft, ReasonFloorSoft},
		{"mail", mail("11.0.0.8"), ReasonPort25, ReasonPort25, ReasonPort25},
		{"a public address", connectAddr("11.0.0.8", 443, HTTPS), ReasonNoRule, ReasonAllowed, ReasonAllowed},
		{"a name that leads to metadata", connect("metadata.google.internal", 443, HTTPS), ReasonFloorHard, ReasonFloorHard, ReasonFloorHard},
		{"a name of this machine", connect("a.localhost", 443, HTTPS), ReasonFloorHard, ReasonFloorHard, ReasonFloorHard},
		{"its lookup", Request{Stage: StageName, Host: "metadata.google.internal", Now: testNow}, ReasonFloorHard, ReasonFloorHard, ReasonFloorHard},
		{"another name", connect("good.test", 443, HTTPS), ReasonNoRule, ReasonAllowed, ReasonNoRule},
		{"no name", connect("good..test", 443, HTTPS), ReasonHostInvalid, ReasonHostInvalid, ReasonHostInvalid},
		{"nothing", Request{Port: 443}, ReasonHostInvalid, ReasonHostInvalid, ReasonHostInvalid},
	} {
		for s, want := range map[*Snapshot]Reason{nothing: c.without, named: c.named, unnamed: c.everywhere} {
			v := f.Evaluate("org_1", s, &c.r)
			floor := want == ReasonFloorHard || want == ReasonFloorSoft || want == ReasonPort25
			if v.Reason != want || v.Allowed() != (want == ReasonAllowed) || (v.Layer == FloorLayer) != floor {
				t.Errorf("%s: %+v, want %s", c.name, v, want)
			}
			if v.Requestable != (want == ReasonNoRule && c.r.Host != "") {
				t.Errorf("%s: may be asked for: %v", c.name, v.Requestable)
			}
			if n := testing.AllocsPerRun(100, func() { f.Evaluate("org_1", s, &c.r) }); n != 0 {
				t.Errorf("%s: %v allocations", c.name, n)
			}
		}
	}
	// The exemption that mail needs is for port 25 of one address, and for one org.
	allowed := compileText(t, `rules: [{id: mail, action: allow, cidrs: [11.0.0.9/32], ports: [25], protocols: [tcp]}]`)
	everywhere := compileText(t, `rules: [{id: mail, action: allow, cidrs: [0.0.0.0/0], ports: [25], protocols: [tcp]}]`)
	r := mail("11.0.0.9")
	for _, c := range []struct {
		org  string
		s    *Snapshot
		want Reason
	}{{"org_1", allowed, ReasonAllowed}, {"org_1", everywhere, ReasonPort25}, {"org_2", allowed, ReasonPort25}} {
		if v := f.Evaluate(c.org, c.s, &r); v.Reason != c.want {
			t.Errorf("mail of %s: %+v, want %s", c.org, v, c.want)
		}
	}
	if v := (*Floor)(nil).Evaluate("org_1", named, &Request{Host: "good.test", Port: 443, Protocol: HTTPS}); v.Allowed() {
		t.Errorf("without a floor: %+v", v)
	}
	if v := f.Evaluate("org_1", nil, &Request{Host: "good.test", Port: 443}); v.Reason != ReasonNoPolicy {
		t.Errorf("without a policy: %+v", v)
	}
}
