package dial_test

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"portreeve.dev/egress/dial"
	"portreeve.dev/policies"
)

func TestLookupTellsNothingClosed(t *testing.T) {
	n := newNameserver(t)
	n.records("good.test", "good.test. 40 IN A 203.0.113.7", "good.test. 40 IN A 8.8.8.8", "good.test. 40 IN A 10.0.0.5", "good.test. 40 IN A 169.254.169.254")
	n.records("private.test", "private.test. 40 IN A 10.0.0.5")
	n.records("metadata.test", "metadata.test. 40 IN A 169.254.169.254")
	n.records("alias.test", "alias.test. 40 IN CNAME localhost.", "localhost. 40 IN A 8.8.8.8")
	n.records("renamed.test", "renamed.test. 7 IN CNAME good.test.", "good.test. 40 IN A 8.8.8.8")
	n.records("stray.test", "stray.test. 40 IN A 8.8.8.8", "good.test. 40 IN A 8.8.4.4")
	d := floorDialer(t, n, dial.Config{})
	look := func(t dial.Target) ([]netip.Addr, time.Duration, error) {
		t.Org = "org_a"
		return d.Lookup(context.Background(), t)
	}
	if got, ttl, err := d.Lookup(context.Background(), dial.Target{Host: "good.test"}); err == nil || got != nil || ttl != 0 {
		t.Errorf("for nobody: %v, %v", got, ttl)
	}
	addrs := func(s ...string) (out []netip.Addr) {
		for _, a := range s {
			out = append(out, netip.MustParseAddr(a))
		}
		return out
	}
	// The exemption for 203.0.113.0/24 is for rules that name the host.
	if got, ttl, err := look(dial.Target{Host: "good.test", Named: true}); err != nil || !slices.Equal(got, addrs("203.0.113.7", "8.8.8.8")) || ttl != 40*time.Second {
		t.Errorf("named: %v, %v, %v", got, ttl, err)
	}
	if got, _, err := look(dial.Target{Host: "good.test"}); err != nil || !slices.Equal(got, addrs("8.8.8.8")) {
		t.Errorf("not named: %v, %v", got, err)
	}
	not8 := func(a netip.Addr) policies.Verdict {
		if a == netip.MustParseAddr("8.8.8.8") {
			return policies.Denied(policies.ReasonRuleDenied)
		}
		return policies.Verdict{Action: policies.Allow}
	}
	if got, _, err := look(dial.Target{Host: "good.test", Named: true, Address: not8}); err != nil || !slices.Equal(got, addrs("203.0.113.7")) {
		t.Errorf("under a rule for an address: %v, %v", got, err)
	}
	if got, ttl, err := look(dial.Target{Host: "renamed.test"}); err != nil || !slices.Equal(got, addrs("8.8.8.8")) || ttl != 7*time.Second {
		t.Errorf("an alias: %v, %v, %v", got, ttl, err)
	}
	if got, _, err := look(dial.Target{Host: "stray.test"}); err != nil || !slices.Equal(got, addrs("8.8.8.8")) {
		t.Errorf("with a stray record: %v, %v", got, err)
	}
	for host, reason := range map[string]policies.Reason{"private.test": policies.ReasonFloorSoft, "metadata.test": policies.ReasonFloorHard, "alias.test": policies.ReasonFloorHard} {
		_, _, err := look(dial.Target{Host: host, Named: true})
		wantRefused(t, err, reason)
	}
	_, _, err := look(dial.Target{Host: "renamed.test", Alias: func(string) policies.Verdict { return policies.Denied(policies.ReasonRuleDenied) }})
	wantRefused(t, err, policies.ReasonRuleDenied)
	_, _, err = look(dial.Target{Host: "none.test"})
	wantKind(t, err, dial.NXDomain)

	before := n.queries.Load()
	_, _, err = look(dial.Target{Host: "metadata.google.internal"})
	wantRefused(t, err, policies.ReasonFloorHard)
	_, _, err = look(dial.Target{Host: "Good.test"})
	wantRefused(t, err, policies.ReasonHostInvalid)
	if got := n.queries.Load(); got != before {
		t.Errorf("%d names were looked up that may not be", got-before)
	}
}

func TestPinIsJudged(t *testing.T) {
	n, u := newNameserver(t), newUpstream(t)
	n.records("good.test", "good.test. 60 IN A 127.0.0.2")
	d := dialer(t, n, dial.Config{})
	target := u.target("good.test")
	target.Pin = good
	if a, err := reach(d, target); err != nil || a != good || n.queries.Load() != 0 {
		t.Errorf("reached %v, %v, with %d queries", a, err, n.queries.Load())
	}
	target.Pin = evil
	_, err := reach(d, target)
	wantRefused(t, err, policies.ReasonFloorHard)
	target.Pin, target.Address = good, func(netip.Addr) policies.Verdict { return policies.Denied(policies.ReasonRuleDenied) }
	_, err = reach(d, target)
	wantRefused(t, err, policies.ReasonRuleDenied)
	target = u.target("metadata.google.internal")
	target.Pin = good
	_, err = reach(d, target)
	wantRefused(t, err, policies.ReasonFloorHard)
	if u.evil.Load() != 0 {
		t.Error("the address that the floor denies was reached")
	}
}
