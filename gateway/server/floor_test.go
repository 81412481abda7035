package server

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/role"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

// open keeps an exemption, as the platform.
func (c *control) open(t *testing.T, by store.By, cidr string, change ...func(*store.FloorExemption)) store.FloorExemption {
	t.Helper()
	by.Principal.Scopes = sso.AllScopes()
	e := store.FloorExemption{ID: store.NewID("flx"), Exemption: policies.Exemption{CIDR: netip.MustParsePrefix(cidr), Orgs: []string{by.Principal.Org}}}
	for _, f := range change {
		f(&e)
	}
	_, err := c.store.Change(t.Context(), by, func(tx *store.Tx) (err error) {
		if e, err = tx.CreateFloorExemption(t.Context(), e, 10); err != nil {
			return err
		}
		return tx.Record(t.Context(), audit.FloorExempt, e.ID, api.FloorDetails(e))
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// TestFloorFollowsTheStore: what control dials by is what the edges are told, for the orgs that are named, for as long as it is kept.
func TestFloorFollowsTheStore(t *testing.T) {
	c, w := newControl(t)
	one, two := w.Org("one"), w.Org("two")
	c.setup.Hard = []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}
	c.setup.Exempt = []role.Exemption{{CIDR: "10.7.0.0/16", Orgs: []string{"two"}}}
	open := func(org store.By, addr string) [2]bool {
		t.Helper()
		state, _, err := c.state(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		edge := feed.NewHolder(c.floorBase(), nil, nil)
		if err := edge.Apply(state.(feed.State)); err != nil {
			t.Fatal(err)
		}
		floor, err := c.floorNow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		a := netip.MustParseAddr(addr)
		return [2]bool{edge.Floor().Judge(org.Principal.Org, a, 443).Allowed(), floor.Judge(org.Principal.Org, a, 443).Allowed()}
	}
	see := func(when string, org store.By, addr string, want bool) {
		t.Helper()
		if got := open(org, addr); got != [2]bool{want, want} {
			t.Errorf("%s: %s is open to %s at the edge %v, in control %v, want %v", when, addr, org.Principal.ID, got[0], got[1], want)
		}
	}
	see("before", one, "10.1.0.1", false)
	see("by its slug in the configuration", two, "10.7.0.1", true)
	e := c.open(t, one, "10.1.0.0/16")
	// One that was kept before the configuration closed its range opens nothing, and takes nothing with it.
	c.open(t, one, "10.200.0.0/16")
	ends := c.open(t, one, "10.2.0.0/16", func(e *store.FloorExemption) { e.ExpiresAt = time.Now().Add(-time.Second) })
	see("kept", one, "10.1.0.1", true)
	see("for another org", two, "10.1.0.1", false)
	see("of the hard floor", one, "10.200.0.1", false)
	see("whose time is up", one, "10.2.0.1", false)

	admin := one
	admin.Principal.Scopes = sso.AllScopes()
	if _, err := c.store.Change(t.Context(), admin, func(tx *store.Tx) error {
		if _, err := tx.DeleteFloorExemption(t.Context(), e.ID); err != nil {
			return err
		}
		return tx.Record(t.Context(), audit.FloorRevoke, e.ID, api.FloorDetails(e))
	}); err != nil {
		t.Fatal(err)
	}
	see("taken away", one, "10.1.0.1", false)
	see("of the configuration, after", two, "10.7.0.1", true)

	// What has ended is taken away and written down, once, by a part of ours.
	c.publisher = &feed.Publisher{}
	for range 2 {
		if err := c.endDueExemptions(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	left, err := c.store.FloorExemptions(t.Context())
	if err != nil || slices.ContainsFunc(left, func(e store.FloorExemption) bool { return e.ID == ends.ID }) || len(left) != 1 {
		t.Errorf("left: %+v, %v", left, err)
	}
	all, n, err := c.store.Audit(t.Context(), one.Principal.Org, store.AuditFilter{Action: string(audit.FloorExpire), Limit: 9})
	if err != nil || n != 1 || all[0].Object != ends.ID || all[0].ActorKind != "system" || all[0].Details["cidr"] != "10.2.0.0/16" {
		t.Errorf("written down: %+v, %v", all, err)
	}
}

// TestInstallersKeyHoldsThePlatform: the key of the info file holds it, in a fresh store and in one of before; no key of before gains it.
func TestInstallersKeyHoldsThePlatform(t *testing.T) {
	scopes := func(c *control, text string) []sso.Scope {
		t.Helper()
		parsed, err := sso.ParseKey(text)
		if err != nil {
			t.Fatal(err)
		}
		k, err := c.store.KeyForLogin(t.Context(), parsed.ID)
		if err != nil {
			t.Fatal(err)
		}
		return k.Scopes
	}
	c, _ := newControl(t)
	edgeOf(t, c)
	first, err := c.devKey(t.Context(), c.api)
	if err != nil || !slices.Contains(scopes(c, first), sso.ScopePlatform) {
		t.Errorf("the first key of a fresh store holds %v, %v", scopes(c, first), err)
	}
	if c.setup.Key = first; c.setup.Key != "" {
		if again, err := c.devKey(t.Context(), c.api); again != first || err != nil {
			t.Errorf("control that starts again gives another key, %v", err)
		}
	}

	c, w := newControl(t)
	edgeOf(t, c)
	old := w.Org("old")
	var before [2]string
	for i, name := range []string{"owner", devKeyName} {
		secret, key, err := sso.NewKey()
		if err != nil {
			t.Fatal(err)
		}
		before[i] = secret.Reveal()
		if _, err := c.store.Change(t.Context(), old, func(tx *store.Tx) error {
			_, err := tx.CreateKey(t.Context(), store.Key{ID: key.ID, Name: name, Prefix: key.Prefix, Hash: key.Hash[:], Scopes: sso.Scopes(), Policies: []string{sso.AnyPolicy}})
			if err != nil {
				return err
			}
			return tx.Record(t.Context(), audit.KeyCreate, key.ID, nil)
		}); err != nil {
			t.Fatal(err)
		}
	}
	now, err := c.devKey(t.Context(), c.api)
	if err != nil || !slices.Contains(scopes(c, now), sso.ScopePlatform) {
		t.Errorf("the key of a store of before holds %v, %v", scopes(c, now), err)
	}
	for _, text := range before {
		if got := scopes(c, text); slices.Contains(got, sso.ScopePlatform) {
			t.Errorf("a key of before holds %v", got)
		}
	}
	if c.keyIsLive(t.Context(), before[1]) || !c.keyIsLive(t.Context(), before[0]) {
		t.Error("the key of the run before goes on, or the owner's doesn't")
	}
}
