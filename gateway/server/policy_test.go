package server

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/role"
	"portreeve.dev/ingress/route"
	"portreeve.dev/secrets"
	"portreeve.dev/secrets/seal"
)

// keep stores a secret of an org with its grants.
func (c *control) keep(t *testing.T, by store.By, name string, grants ...secrets.Grant) store.Secret {
	t.Helper()
	s := store.Secret{ID: store.NewID("sec"), Org: by.Principal.Org, Name: name, Version: 1}
	var err error
	if s.Sealed, err = c.keyring.Seal(seal.Record{Kind: "secret", Org: s.Org, Name: s.ID, Version: 1}, []byte("value of "+name)); err != nil {
		t.Fatal(err)
	}
	_, err = c.store.Change(t.Context(), by, func(tx *store.Tx) error {
		if _, err := tx.CreateSecret(t.Context(), s); err != nil {
			return err
		}
		if err := tx.SetGrants(t.Context(), name, grants); err != nil {
			return err
		}
		return tx.Record(t.Context(), audit.SecretCreate, s.ID, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSecretWithoutAGrantStays(t *testing.T) {
	c, w := newControl(t)
	one, two := w.Org("one"), w.Org("two")
	c.keep(t, one, "idle")
	granted := c.keep(t, one, "granted", secrets.Grant{Host: "api.test", Place: "header", Header: "Authorization"})
	c.keep(t, two, "other", secrets.Grant{Host: "api.test", Place: "header", Header: "Authorization"})
	state, revision, err := c.state(t.Context())
	if err != nil || revision == 0 {
		t.Fatalf("revision %d, %v", revision, err)
	}
	s := state.(feed.State)
	i := slices.IndexFunc(s.Orgs, func(o feed.Org) bool { return o.ID == one.Principal.Org })
	if i < 0 || len(s.Orgs) != 2 {
		t.Fatalf("the orgs are %+v", s.Orgs)
	}
	if got := s.Orgs[i].Secrets; len(got) != 1 || got[0].ID != granted.ID || string(got[0].Value) != "value of granted" || got[0].Grants[0].Host != "api.test" {
		t.Errorf("its secrets are %+v", got)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "idle") || strings.Contains(string(text), string(encode(t, "value of idle"))) {
		t.Errorf("a secret without a grant leaves: %s", text)
	}

	// Sealed bytes are bound to where they stand.
	moved := granted
	moved.Org = two.Principal.Org
	moved.Grants = []secrets.Grant{{Host: "api.test"}}
	if got := c.openSecrets([]store.Secret{moved}); len(got) != 1 || got[0].Value != nil {
		t.Error("a value opens in another org's row")
	}
}

// TestUnopenableSecretClosesOnlyItself: sealed bytes that were damaged, or sealed under a key that is gone, stop no feed.
func TestUnopenableSecretClosesOnlyItself(t *testing.T) {
	c, w := newControl(t)
	var log bytes.Buffer
	c.log = slog.New(slog.NewTextHandler(&log, nil))
	one, two := w.Org("one"), w.Org("two")
	grant := secrets.Grant{Host: "api.test", Place: "header", Header: "Authorization"}
	good := c.keep(t, one, "good", secrets.Grant{Host: "good.test", Place: "header", Header: "Authorization"})
	bad := c.keep(t, one, "bad", grant)
	theirs := c.keep(t, two, "theirs", grant)
	spoiled := slices.Clone(bad.Sealed)
	spoiled[len(spoiled)-1] ^= 1
	set := func(version int64, sealed []byte) {
		t.Helper()
		_, err := c.store.Change(t.Context(), one, func(tx *store.Tx) error {
			if err := tx.SetSecretValue(t.Context(), "bad", version, sealed); err != nil {
				return err
			}
			return tx.Record(t.Context(), audit.SecretUpdate, bad.ID, nil)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	set(2, spoiled)
	values := func() map[string]string {
		t.Helper()
		state, _, err := c.state(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]string{}
		for _, o := range state.(feed.State).Orgs {
			for _, s := range o.Secrets {
				all[s.ID] = string(s.Value)
			}
		}
		return all
	}
	for range 2 {
		got := values()
		if want := map[string]string{good.ID: "value of good", bad.ID: "", theirs.ID: "value of theirs"}; !maps.Equal(got, want) {
			t.Errorf("fed %q, want %q", got, want)
		}
	}
	if text := log.String(); strings.Count(text, "can't be opened") != 1 || !strings.Contains(text, bad.ID) || strings.Contains(text, "value of") {
		t.Errorf("the log says:\n%s", text)
	}
	mended, err := c.keyring.Seal(seal.Record{Kind: "secret", Org: bad.Org, Name: bad.ID, Version: 3}, []byte("new value"))
	if err != nil {
		t.Fatal(err)
	}
	set(3, mended)
	if got := values(); got[bad.ID] != "new value" || !strings.Contains(log.String(), "can be opened again") {
		t.Errorf("after a new value: %q\n%s", got, log.String())
	}
}

// encode is how bytes stand in JSON.
func encode(t *testing.T, s string) []byte {
	t.Helper()
	text, err := json.Marshal([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return text[1 : len(text)-1]
}

func TestExemptionsNameOrgsByIDOrSlug(t *testing.T) {
	c, w := newControl(t)
	one := w.Org("one")
	c.setup.Exempt = []role.Exemption{{CIDR: "192.0.2.0/24", Ports: []uint16{443}, Orgs: []string{"one", "nobody"}}, {CIDR: "198.51.100.0/24", Orgs: []string{"*"}}}
	got, err := c.exemptions(context.Background(), nil)
	if err != nil || len(got) != 2 {
		t.Fatalf("got %+v, %v", got, err)
	}
	if want := []string{one.Principal.Org, "nobody"}; !slices.Equal(got[0].Orgs, want) || got[0].Ports[0] != 443 {
		t.Errorf("the first is %+v, wanted for %v", got[0], want)
	}
	if !slices.Equal(got[1].Orgs, []string{"*"}) {
		t.Errorf("the second is %+v", got[1])
	}
	if c.setup.Exempt[0].Orgs[0] != "one" {
		t.Error("the configuration was changed")
	}
}

func TestTunnelEndsWithItsSandbox(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	hash := slices.Repeat([]byte{7}, 32)
	base := store.Route{Tunnel: store.Tunnel{ID: "tun_1", Org: "org_1", Sandbox: "sbx_1", Host: "a-1.test", Port: 1, TokenHash: hash, AuthEpoch: 3, ExpiresAt: now.Add(time.Hour)},
		Status: store.Running, Generation: 5, SandboxEnd: now.Add(2 * time.Hour)}
	for name, c := range map[string]struct {
		change func(*store.Route)
		state  route.State
		end    time.Time
	}{
		"a running sandbox":                 {func(*store.Route) {}, route.Running, now.Add(time.Hour)},
		"a paused one":                      {func(r *store.Route) { r.Status = store.Paused }, route.Paused, now.Add(time.Hour)},
		"one that ends before the tunnel":   {func(r *store.Route) { r.SandboxEnd = now.Add(time.Minute) }, route.Running, now.Add(time.Minute)},
		"one that is being ended":           {func(r *store.Route) { r.Status = store.Terminating }, route.Gone, now.Add(time.Hour)},
		"a tunnel that was deleted":         {func(r *store.Route) { r.DeletedAt = now }, route.Gone, now.Add(time.Hour)},
		"deleted, of a sandbox that sleeps": {func(r *store.Route) { r.DeletedAt, r.Status = now, store.Paused }, route.Gone, now.Add(time.Hour)},
		"a status that nobody knows":        {func(r *store.Route) { r.Status = "strange" }, route.Gone, now.Add(time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			r := base
			c.change(&r)
			got := record(r)
			if got.State != c.state || !got.ExpiresAt.Equal(c.end) || got.Generation != 5 || got.AuthEpoch != 3 || got.Public {
				t.Errorf("the record is %+v", got)
			}
			if has := got.TokenHash != (route.Hash{}); has != (c.state != route.Gone) {
				t.Errorf("the hash of its token is there: %v", has)
			}
		})
	}
}
