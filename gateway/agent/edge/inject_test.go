package edge

import (
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/secrets"
)

// What carries a secret is current while it has the newest version, and held while any is granted to the host under a fresh policy.
func TestSecretsAreHeldWhileTheyAreGranted(t *testing.T) {
	w := newWorld(t)
	in := injector{w.holder}
	apply := func(revision uint64, secret ...feed.Secret) {
		t.Helper()
		state := policy(revision, "good.test")
		state.Orgs[0].Secrets = secret
		if err := w.holder.Apply(state); err != nil {
			t.Fatal(err)
		}
	}
	version := func(n int64, host string) feed.Secret {
		return feed.Secret{ID: "sec_1", Version: n, Value: []byte("value"), Grants: []secrets.Grant{{Host: host, Place: secrets.PlaceHeader, Header: "Authorization"}}}
	}
	expect := func(name string, current, held bool) {
		t.Helper()
		if got := in.Current(boxA, "good.test", 443, decisions.Use{Secret: "sec_1", Version: 1}); got != current {
			t.Errorf("%s: current is %v", name, got)
		}
		if got := in.holds(boxA, "good.test", 443, flows.Carried{Secret: "sec_1", Version: 1}); got != held {
			t.Errorf("%s: held is %v", name, got)
		}
	}
	expect("before any policy", false, false)
	apply(1, version(1, "good.test"))
	expect("granted", true, true)
	apply(2, version(2, "good.test"))
	expect("a newer version", false, true)
	apply(3, version(2, "fine.test"))
	expect("granted elsewhere", false, false)
	apply(4, version(1, "good.test"))
	expect("granted again", true, true)
	w.clock.Add(int64(feed.FreshFor + time.Second))
	expect("without a fresh policy", false, false)
}
