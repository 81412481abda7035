package api_test

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

const exemptions = "/platform/floor-exemptions"

// TestFloorIsThePlatforms: an org's owner opens the floor for nobody, not even for its own org, and gets no key that does.
func TestFloorIsThePlatforms(t *testing.T) {
	w := apitest.New(t)
	admin, owner := w.Installer("host"), w.Org("one")
	made := w.Send("POST", w.URL+"/register", "", []byte(`{"email":"a@example.com","organization_name":"x"}`), http.Header{"X-Portreeve-Setup-Token": {apitest.SetupToken}}).Want(201)
	registered := owner.Also("X-Org-Id", made.String("organization.id"))
	registered.Key, registered.Org = made.String("api_key.key"), made.String("organization.id")
	inside := admin.With([]string{"read", "write", "admin", "grants", "approve"}, "*")
	kept := admin.Do("POST", exemptions, object{"cidr": "10.1.0.0/16", "orgs": []string{owner.Org}}).Want(201).String("id")
	for name, c := range map[string]*apitest.Client{"the owner of an org": owner, "of a registered one": registered, "a key of the installer's org": inside} {
		for _, a := range []*apitest.Answer{
			c.Do("GET", exemptions, nil), c.Do("POST", exemptions, object{"cidr": "10.2.0.0/16", "orgs": []string{c.Org}}), c.Do("DELETE", exemptions+"/"+kept, nil),
		} {
			if a.Refused(403, "scope_missing"); t.Failed() {
				t.Fatalf("by %s: %s", name, a.Body)
			}
		}
		// Nor by a key that it makes, or takes over.
		c.Do("POST", "/api-keys", object{"name": "x", "scopes": []string{"platform"}}).Refused(403, "stronger_key", "body.scopes[0]")
		c.Do("POST", "/api-keys", object{"name": "x", "scopes": []string{"read", "platform"}}).Refused(403, "stronger_key", "body.scopes[1]")
		c.Do("POST", "/api-keys", object{"name": "x", "scopes": []string{"read"}}).Want(201)
	}
	id := admin.Do("GET", "/api-keys", nil).String("api_keys.0.id")
	inside.Do("POST", "/api-keys/"+id+"/rotate", nil).Refused(403, "stronger_key")
	if a := admin.Do("GET", exemptions, nil).Want(200); a.String("exemptions.0.id") != kept || a.At("exemptions.1") != nil {
		t.Errorf("open is %s", a.Body)
	}
	// The twin: whoever has it may give it.
	admin.With([]string{"platform"}).Do("GET", exemptions, nil).Want(200)
	admin.With([]string{"platform"}).Do("GET", "/sandboxes", nil).Refused(403, "scope_missing")
}

func TestFloorExemptionsAreKept(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	w := apitest.New(t, func(c *api.Config) {
		c.Now = func() time.Time { return now }
		c.Configured = []policies.Exemption{{CIDR: netip.MustParsePrefix("10.9.0.0/16"), Orgs: []string{"acme"}}}
	})
	admin, one, two := w.Installer("host"), w.Org("one"), w.Org("two")
	var slug string
	orgs, err := w.Store.Orgs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range orgs {
		if o.ID == two.Org {
			slug = o.Slug
		}
	}
	ask := object{"cidr": "10.1.0.0/16", "ports": []int{25, 5432}, "orgs": []string{one.Org, slug}, "note": "the \x1b[31mdatabase", "for": "2h"}
	before := len(w.Feed.Published())
	first := admin.Also("Idempotency-Key", "k").Do("POST", exemptions+"?wait=applied", ask).Want(201)
	id := first.String("id")
	if first.String("cidr") != "10.1.0.0/16" || first.At("ports.1") != 5432.0 || first.String("orgs.0") != one.Org || first.String("orgs.1") != two.Org || first.String("note") != "the  [31mdatabase" ||
		first.String("expires_at") != "2026-12-01T14:00:00Z" || !strings.HasPrefix(first.String("created_by"), "key_") || !strings.HasPrefix(id, "flx_") {
		t.Errorf("%s", first.Body)
	}
	if again := admin.Also("Idempotency-Key", "k").Do("POST", exemptions+"?wait=applied", ask).Want(201); again.String("id") != id || again.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("again: %s", again.Body)
	}
	if published := w.Feed.Published(); len(published) != before+1 || w.Feed.Applied() != published[before] {
		t.Errorf("published %v, applied %d", published, w.Feed.Applied())
	}
	mapped := admin.Do("POST", exemptions, object{"cidr": "::ffff:10.2.0.0/112", "orgs": []string{"*"}}).Want(201)
	if mapped.String("cidr") != "10.2.0.0/16" || mapped.String("orgs.0") != "*" || mapped.At("expires_at") != nil || mapped.At("ports.0") != nil {
		t.Errorf("%s", mapped.Body)
	}
	list := admin.Do("GET", exemptions, nil).Want(200)
	if list.String("exemptions.0.id") != id || list.String("exemptions.1.id") != mapped.String("id") || list.At("exemptions.2") != nil ||
		list.String("configured.0.cidr") != "10.9.0.0/16" || list.String("configured.0.orgs.0") != "acme" || list.At("configured.0.id") != nil {
		t.Errorf("%s", list.Body)
	}
	w.Feed.Silent(true)
	admin.Do("DELETE", exemptions+"/"+mapped.String("id"), nil).Want(200)
	w.Feed.Silent(false)
	admin.Do("DELETE", exemptions+"/"+id+"?wait=applied", nil).Want(200)
	admin.Do("DELETE", exemptions+"/"+id, nil).Refused(404, "floor_exemption_not_found")
	if published := w.Feed.Published(); len(published) != before+4 || w.Feed.Applied() != published[before+3] {
		t.Errorf("published %v, applied %d", published, w.Feed.Applied())
	}
	// It stands in the log of the org whose key did it, and in no other.
	log := admin.Do("GET", "/audit?limit=9", nil).Want(200)
	for i, action := range []string{"floor.revoke", "floor.revoke", "floor.exempt", "floor.exempt"} {
		at := "events." + string(rune('0'+i))
		if log.String(at+".action") != action || !strings.HasPrefix(log.String(at+".user_id"), "key_") || log.String(at+".details.orgs") == "" {
			t.Errorf("entry %d of %s", i, log.Body)
		}
	}
	if log.String("events.0.resource") != id || log.String("events.0.details.cidr") != "10.1.0.0/16" || log.String("events.0.details.ports") != "25 5432" || log.String("events.0.details.expires_at") == "" {
		t.Errorf("%s", log.Body)
	}
	chain, err := w.Store.AuditChain(t.Context(), admin.Org, 1, 100)
	if err != nil || audit.Verify(audit.Genesis(admin.Org), chain) != nil {
		t.Errorf("the chain: %v, %v", audit.Verify(audit.Genesis(admin.Org), chain), err)
	}
	if theirs := string(one.Do("GET", "/audit", nil).Want(200).Body); strings.Contains(theirs, "floor.") {
		t.Errorf("in the log of another org: %s", theirs)
	}
}

func TestFloorExemptionsThatAreRefused(t *testing.T) {
	w := apitest.New(t, func(c *api.Config) {
		var err error
		if c.Floor, err = policies.NewFloor(policies.FloorConfig{Hard: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}}); err != nil {
			t.Fatal(err)
		}
	})
	admin := w.Installer("host")
	good := func() object { return object{"cidr": "10.1.0.0/16", "orgs": []string{"*"}} }
	for _, c := range []struct {
		field, at string
		value     any
	}{
		{"cidr", "body.cidr", "169.254.1.0/24"}, {"cidr", "body.cidr", "0.0.0.0/0"}, {"cidr", "body.cidr", "::/0"}, {"cidr", "body.cidr", "10.0.0.0/8"},
		{"cidr", "body.cidr", "::ffff:127.0.0.0/104"}, {"cidr", "body.cidr", "64:ff9b::a01:0/112"}, {"cidr", "body.cidr", "10.1.0.1/16"},
		{"cidr", "body.cidr", "lan"}, {"cidr", "body.cidr", "10.1.0.0"}, {"cidr", "body.cidr", "fe80::%eth0/64"}, {"cidr", "body", nil},
		{"orgs", "body.orgs", []string{}}, {"orgs", "body", nil}, {"orgs", "body.orgs[0]", []string{"nobody"}}, {"orgs", "body.orgs[1]", []string{admin.Org, "*"}}, {"orgs", "body.orgs[0]", []string{""}},
		{"ports", "body.ports[0]", []int{0}}, {"ports", "body.ports[1]", []int{443, 65536}}, {"ports", "body.ports[0]", []int{-1}},
		{"for", "body.for", "0s"}, {"for", "body.for", "8785h"}, {"for", "body.for", "soon"}, {"note", "body.note", strings.Repeat("x", 501)}, {"ids", "body.ids", "x"},
	} {
		body := good()
		if body[c.field] = c.value; c.value == nil {
			delete(body, c.field)
		}
		a := admin.Do("POST", exemptions, body).Refused(422, "invalid_request", c.at)
		if text, ok := c.value.(string); ok && len(text) > 3 && strings.Contains(string(a.Body), text) {
			t.Errorf("the answer repeats %q: %s", text, a.Body)
		}
	}
	if a := admin.Do("POST", exemptions, object{"cidr": "10.0.0.0/8", "orgs": []string{"*"}}); !strings.Contains(string(a.Body), "overlaps 10.200.0.0/16, which is hard") {
		t.Errorf("it does not say with what: %s", a.Body)
	}
	if a := admin.Do("GET", exemptions, nil).Want(200); a.At("exemptions.0") != nil {
		t.Errorf("kept: %s", a.Body)
	}
	admin.Do("POST", exemptions, good()).Want(201)
	// There is a most, of all together.
	by := principal(admin)
	by.Principal.Scopes = sso.AllScopes()
	_, err := w.Store.Change(t.Context(), by, func(tx *store.Tx) error {
		for range 255 {
			_, err := tx.CreateFloorExemption(t.Context(), store.FloorExemption{ID: store.NewID("flx"), Exemption: policies.Exemption{CIDR: netip.MustParsePrefix("10.1.0.0/16"), Orgs: []string{"*"}}}, 256)
			if err != nil {
				return err
			}
		}
		return tx.Record(t.Context(), audit.FloorExempt, "x", nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	admin.Do("POST", exemptions, good()).Refused(409, "too_many_floor_exemptions")
}

// TestCheckLooksAtExemptions: an exemption answers for its org, and only where a rule names the address, as at the edge.
func TestCheckLooksAtExemptions(t *testing.T) {
	var open []policies.Exemption
	w := apitest.New(t, func(c *api.Config) {
		c.FloorNow = func(context.Context) (*policies.Floor, error) { return c.Floor.With(open...) }
	})
	one, two := w.Org("one"), w.Org("two")
	check := func(c *apitest.Client, want string, rules ...object) {
		t.Helper()
		c.Do("PUT", "/settings/egress", document(rules...)).Want(200)
		if a := c.Do("POST", "/policies/check", object{"host": "10.1.2.3"}).Want(200); a.String("reason") != want {
			t.Errorf("%s: %s, want %s", c.Org, a.Body, want)
		}
	}
	named := object{"id": "lan", "action": "allow", "cidrs": []string{"10.1.0.0/16"}, "ports": []int{443}}
	wide := object{"id": "all", "action": "allow", "cidrs": []string{"0.0.0.0/0"}, "ports": []int{443}}
	check(one, "floor_soft", named)
	open = []policies.Exemption{{CIDR: netip.MustParsePrefix("10.1.0.0/16"), Orgs: []string{one.Org}}}
	check(one, "allowed", named)
	check(one, "floor_soft", wide)
	check(two, "floor_soft", named)
}
