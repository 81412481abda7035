package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

func orgsDontMeet(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	one, two := w.Org("one"), w.Org("two")
	_, _, err := w.Policy(one, "web", `{"rules":[]}`, 0)
	w.must(err)
	_, key, err := sso.NewKey()
	w.must(err)
	_, err = w.Change(ctx(t), one, func(tx *store.Tx) error {
		if _, err := tx.CreateKey(ctx(t), store.Key{ID: key.ID, Prefix: key.Prefix, Hash: key.Hash[:]}); err != nil {
			return err
		}
		return tx.Record(ctx(t), audit.KeyCreate, key.ID, nil)
	})
	w.must(err)
	b := w.Sandbox(one, "web")
	d := decision(one, "a.test", time.Now())
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{d}))

	_, err = w.Secret(one, "key")
	w.must(err)
	_, err = w.Secret(two, "theirs") // so that its list is not empty
	w.must(err)
	tunnel, err := w.Tunnel(one, b.ID, "a.test", 9)
	w.must(err)
	w.must(w.change(one, func(tx *store.Tx) error {
		return errors.Join(tx.CreateRoot(ctx(t), store.Root{Version: 1, State: store.RootSigning, Certificate: []byte("c"), SealedKey: []byte("k")}),
			tx.AddIntermediate(ctx(t), store.Intermediate{Serial: "5e", Root: 1, EndsAt: tx.Now().Add(time.Hour)}))
	}))

	mine, other := one.Principal.Org, two.Principal.Org
	reads := map[string]func(org string) error{
		"Sandbox":       func(org string) error { _, err := w.Store.Sandbox(ctx(t), org, b.ID); return err },
		"Policy":        func(org string) error { _, err := w.Store.Policy(ctx(t), org, "web"); return err },
		"PolicyVersion": func(org string) error { _, err := w.PolicyVersion(ctx(t), org, "web", 1); return err },
		"Key":           func(org string) error { _, err := w.Key(ctx(t), org, key.ID); return err },
		"Decision":      func(org string) error { _, err := w.Decision(ctx(t), org, d.ID); return err },
		"Secret":        func(org string) error { _, err := w.Store.Secret(ctx(t), org, "key"); return err },
	}
	lists := map[string]func(org string) int{
		"Sandboxes": func(org string) int { all, _ := w.Sandboxes(ctx(t), org, time.Time{}, 10); return len(all) },
		"Policies":  func(org string) int { all, _ := w.Policies(ctx(t), org); return len(all) },
		"Keys":      func(org string) int { all, _ := w.Keys(ctx(t), org); return len(all) },
		"Decisions": func(org string) int {
			all, _ := w.Decisions(ctx(t), org, store.DecisionFilter{Limit: 9})
			return len(all)
		},
		"DecisionsAfter": func(org string) int { all, _ := w.DecisionsAfter(ctx(t), org, 0, 9); return len(all) },
		"PolicyVersions": func(org string) int { all, _ := w.PolicyVersions(ctx(t), org, "web", 0, 9); return len(all) },
		"Secrets": func(org string) int {
			all, _ := w.Secrets(ctx(t), org)
			return len(slices.DeleteFunc(all, func(s store.Secret) bool { return s.Name == "theirs" }))
		},
		"Roots":         func(org string) int { all, _ := w.Roots(ctx(t), org); return len(all) },
		"Intermediates": func(org string) int { all, _ := w.Intermediates(ctx(t), org, time.Now()); return len(all) },
		"Tunnels":       func(org string) int { all, _ := w.Tunnels(ctx(t), org, b.ID, time.Now()); return len(all) },
		"LiveTunnels":   func(org string) int { all, _ := w.LiveTunnels(ctx(t), org, time.Now()); return len(all) },
		"Audit": func(org string) int {
			all, _, _ := w.Audit(ctx(t), org, store.AuditFilter{Object: b.ID, Limit: 9})
			return len(all)
		},
	}
	for name, read := range reads {
		if err := read(mine); err != nil {
			t.Errorf("%s of its own org: %v", name, err)
		}
		if err := read(other); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s of another org: err = %v", name, err)
		}
	}
	for name, count := range lists {
		if n := count(mine); n != 1 {
			t.Errorf("%s of its own org: %d rows", name, n)
		}
		if n := count(other); n != 0 {
			t.Errorf("%s of another org: %d rows", name, n)
		}
	}
	changes := map[string]func(tx *store.Tx) error{
		"UpdateSandbox":  func(tx *store.Tx) error { _, err := tx.UpdateSandbox(ctx(t), b); return err },
		"DeletePolicy":   func(tx *store.Tx) error { return tx.DeletePolicy(ctx(t), "web", store.AnyVersion) },
		"RevokeKey":      func(tx *store.Tx) error { return tx.RevokeKey(ctx(t), key.ID) },
		"SetSecretValue": func(tx *store.Tx) error { return tx.SetSecretValue(ctx(t), "key", 2, []byte("forged")) },
		"SetGrants":      func(tx *store.Tx) error { return tx.SetGrants(ctx(t), "key", nil) },
		"DeleteSecret":   func(tx *store.Tx) error { return tx.DeleteSecret(ctx(t), "key") },
		"DeleteTunnel":   func(tx *store.Tx) error { return tx.DeleteTunnel(ctx(t), b.ID, tunnel.ID) },
		"ShortenTunnel":  func(tx *store.Tx) error { return tx.ShortenTunnel(ctx(t), tunnel.ID, tx.Now()) },
		"MoveRoot": func(tx *store.Tx) error {
			return tx.MoveRoot(ctx(t), 1, store.RootSigning, store.RootRetired, tx.Now())
		},
		"RevokeIntermediate": func(tx *store.Tx) error { return tx.RevokeIntermediate(ctx(t), "5e") },
		"SetOwnList": func(tx *store.Tx) error {
			_, err := tx.SetOwnList(ctx(t), b.ID, []byte(`{}`), store.AnyVersion)
			return err
		},
		"SetSandboxPolicy": func(tx *store.Tx) error { _, err := tx.SetSandboxPolicy(ctx(t), b.ID, "web", ""); return err },
		"CreateTunnel": func(tx *store.Tx) error {
			_, err := tx.CreateTunnel(ctx(t), store.Tunnel{ID: store.NewID("tun"), Sandbox: b.ID, Host: "forged.test", Port: 1, ExpiresAt: tx.Now().Add(time.Hour)}, 9)
			return err
		},
	}
	for name, change := range changes {
		_, err := w.Change(ctx(t), two, func(tx *store.Tx) error {
			if err := change(tx); err != nil {
				return err
			}
			return tx.Record(ctx(t), audit.SettingsUpdate, "x", nil)
		})
		if !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrVersion) {
			t.Errorf("%s by another org: err = %v", name, err)
		}
	}
	// An id of another org's decision does not let its text be replaced.
	forged := d
	forged.Org, forged.Host, forged.Closed = other, "forged.test", true
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{forged}))
	if got, err := w.Decision(ctx(t), mine, d.ID); err != nil || got.Host != "a.test" || got.Closed {
		t.Errorf("a decision after another org's append: %+v, %v", got, err)
	}
}

func staleVersionChangesNothing(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	p, _, err := w.Policy(by, "web", `{"rules":[1]}`, 0)
	w.must(err)
	if _, _, err := w.Policy(by, "web", `{"rules":[2]}`, 0); !errors.Is(err, store.ErrVersion) {
		t.Errorf("creating a policy that is there: %v", err)
	}
	if _, _, err := w.Policy(by, "web", `{"rules":[2]}`, p.Version); err != nil {
		t.Errorf("the version seen: %v", err)
	}
	if _, _, err := w.Policy(by, "web", `{"rules":[3]}`, p.Version); !errors.Is(err, store.ErrVersion) {
		t.Errorf("a stale version: %v", err)
	}
	if got, _ := w.Store.Policy(ctx(t), by.Principal.Org, "web"); string(got.Document) != `{"rules":[2]}` || got.Version != 2 {
		t.Errorf("after a stale write: version %d, %s", got.Version, got.Document)
	}
	won := 0
	for _, err := range together(8, func(i int) error { _, _, err := w.Policy(by, "web", `{}`, 2); return err }) {
		if err == nil {
			won++
		} else if !errors.Is(err, store.ErrVersion) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d of 8 writers with one version won", won)
	}
	b := w.Sandbox(by, "")
	update := func(b store.Sandbox, status store.SandboxStatus) error {
		_, err := w.Change(ctx(t), by, func(tx *store.Tx) error {
			b.Status = status
			if _, err := tx.UpdateSandbox(ctx(t), b); err != nil {
				return err
			}
			return tx.Record(ctx(t), audit.SandboxPause, b.ID, nil)
		})
		return err
	}
	w.must(update(b, store.Paused))
	if err := update(b, store.Terminated); !errors.Is(err, store.ErrVersion) {
		t.Errorf("a stale sandbox: %v", err)
	}
	if got, _ := w.Store.Sandbox(ctx(t), by.Principal.Org, b.ID); got.Status != store.Paused {
		t.Errorf("after a stale write: %s", got.Status)
	}
}

func decisionAppendIsIdempotent(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	get := func(id string) store.Decision {
		t.Helper()
		d, err := w.Decision(ctx(t), by.Principal.Org, id)
		w.must(err)
		return d
	}
	d := decision(by, "a.test", time.Now())
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{d}))
	again := d
	again.Host = "other.test"
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{again, decision(by, "b.test", time.Now())}))
	if got := get(d.ID); got.Host != "a.test" {
		t.Errorf("a second append changed the host to %q", got.Host)
	}
	closed := d
	closed.Closed, closed.Status, closed.BytesIn = true, 200, 7
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{closed}))
	if got := get(d.ID); !got.Closed || got.BytesIn != 7 {
		t.Errorf("closing did not change it: %+v", got)
	}
	closed.BytesIn = 8
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{closed, d}))
	if got := get(d.ID); !got.Closed || got.BytesIn != 7 {
		t.Errorf("closing twice, or opening after closing, changed it: %+v", got)
	}
	all, err := w.Decisions(ctx(t), by.Principal.Org, store.DecisionFilter{Limit: 10})
	w.must(err)
	if len(all) != 2 {
		t.Errorf("%d rows, want 2", len(all))
	}
	stranger := decision(store.By{Principal: sso.Principal{Org: store.NewID("org")}}, "c.test", time.Now())
	good := decision(by, "d.test", time.Now())
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{stranger, good}))
	get(good.ID)
}

func timesComeBackInUTC(t *testing.T, open Open) {
	kathmandu := time.FixedZone("+0545", 5*3600+45*60)
	now := time.Date(2026, 3, 29, 1, 59, 59, 123_456_789, kathmandu)
	w := NewWorld(t, open, store.Options{Now: func() time.Time { return now }})
	by := w.Org("one")
	b := w.Sandbox(by, "")
	got, err := w.Store.Sandbox(ctx(t), by.Principal.Org, b.ID)
	w.must(err)
	want := now.UTC().Truncate(time.Microsecond)
	if !got.CreatedAt.Equal(want) || got.CreatedAt.Location() != time.UTC || !got.ExpiresAt.Equal(want.Add(time.Hour)) {
		t.Errorf("created %v, want %v; expires %v", got.CreatedAt, want, got.ExpiresAt)
	}
	if diff := cmp.Diff(b, got); diff != "" {
		t.Errorf("what was written is not what is read (-written +read):\n%s", diff)
	}
	d := decision(by, "a.test", now)
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{d}))
	for _, since := range []time.Time{now.UTC().Add(-time.Second), now.In(time.FixedZone("-1200", -12*3600)).Add(-time.Second)} {
		if all, _ := w.Decisions(ctx(t), by.Principal.Org, store.DecisionFilter{Since: since, Limit: 9}); len(all) != 1 || all[0].Time.Location() != time.UTC {
			t.Errorf("since %v: %+v", since, all)
		}
	}
	if all, _ := w.Decisions(ctx(t), by.Principal.Org, store.DecisionFilter{Since: now.Add(time.Second), Limit: 9}); len(all) != 0 {
		t.Errorf("a second later: %d rows", len(all))
	}
	if all := w.chain(by.Principal.Org); all[0].Time.Location() != time.UTC {
		t.Errorf("entry at %v", all[0].Time)
	}
}

func decisionsAreListedByCursor(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var batch []decisions.Decision
	for i := range 10 {
		d := decision(by, fmt.Sprintf("h%d.test", i), start.Add(time.Duration(i/2)*time.Second)) // pairs at the same time
		if i%5 == 0 {
			d.Verdict, d.Sandbox = "allow", "sbx_2"
		}
		batch = append(batch, d)
	}
	w.must(w.AppendDecisions(ctx(t), batch))
	var hosts []string
	var after store.Position
	for {
		page, err := w.Decisions(ctx(t), by.Principal.Org, store.DecisionFilter{After: after, Limit: 3})
		w.must(err)
		if len(page) == 0 {
			break
		}
		for _, d := range page {
			hosts = append(hosts, d.Host)
		}
		after = page[len(page)-1].Place()
	}
	want := []string{"h9.test", "h8.test", "h7.test", "h6.test", "h5.test", "h4.test", "h3.test", "h2.test", "h1.test", "h0.test"}
	if !slices.Equal(hosts, want) {
		t.Errorf("pages give %v", hosts)
	}
	for name, f := range map[string]struct {
		store.DecisionFilter
		want int
	}{
		"verdict":                {store.DecisionFilter{Verdict: "allow"}, 2},
		"sandbox":                {store.DecisionFilter{Sandbox: "sbx_1"}, 8},
		"host":                   {store.DecisionFilter{Host: "h3.test"}, 1},
		"since":                  {store.DecisionFilter{Since: start.Add(4 * time.Second)}, 2},
		"all of them":            {store.DecisionFilter{Verdict: "allow", Sandbox: "sbx_2", Host: "h5.test", Since: start}, 1},
		"one that does not hold": {store.DecisionFilter{Verdict: "deny", Host: "h5.test"}, 0},
	} {
		f.Limit = 100
		if all, err := w.Decisions(ctx(t), by.Principal.Org, f.DecisionFilter); err != nil || len(all) != f.want {
			t.Errorf("filter by %s: %d rows, want %d (%v)", name, len(all), f.want, err)
		}
	}
}

func decisionsAreFollowed(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	const n = 12
	for _, err := range together(n, func(i int) error {
		return w.AppendDecisions(ctx(t), []decisions.Decision{decision(by, "a.test", time.Now()), decision(by, "b.test", time.Now())})
	}) {
		w.must(err)
	}
	var last int64
	count := 0
	for {
		page, err := w.DecisionsAfter(ctx(t), by.Principal.Org, last, 5)
		w.must(err)
		if len(page) == 0 {
			break
		}
		for _, d := range page {
			if d.Seq <= last {
				t.Errorf("number %d after %d", d.Seq, last)
			}
			last = d.Seq
			count++
		}
	}
	if count != 2*n {
		t.Errorf("followed %d, want %d", count, 2*n)
	}
	if h, _ := w.Holdings(ctx(t), by.Principal.Org); h.LastSeq != last || h.Count != 2*n {
		t.Errorf("last place %d of %d, last followed %d", h.LastSeq, h.Count, last)
	}
	more := w.Appended()
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{decision(by, "c.test", time.Now())}))
	select {
	case <-more:
	default:
		t.Error("an append was not announced")
	}
}

func policyVersionsAreKept(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	org := by.Principal.Org
	if c, err := w.Store.Policy(ctx(t), org, store.Ceiling); err != nil || c.Version != 0 || string(c.Document) != `{"rules":[]}` {
		t.Errorf("a fresh ceiling: %+v, %v", c, err)
	}
	for i := range 3 {
		_, _, err := w.Policy(by, "web", fmt.Sprintf(`{"n":%d}`, i+1), int64(i))
		w.must(err)
	}
	for i := range 3 {
		p, err := w.PolicyVersion(ctx(t), org, "web", int64(i+1))
		if err != nil || string(p.Document) != fmt.Sprintf(`{"n":%d}`, i+1) {
			t.Errorf("version %d: %s, %v", i+1, p.Document, err)
		}
	}
	remove := func(expected int64) error {
		_, err := w.Change(ctx(t), by, func(tx *store.Tx) error {
			if err := tx.DeletePolicy(ctx(t), "web", expected); err != nil {
				return err
			}
			return tx.Record(ctx(t), audit.PolicyDelete, "policy:web", nil)
		})
		return err
	}
	if err := remove(2); !errors.Is(err, store.ErrVersion) {
		t.Errorf("deleting a stale version: %v", err)
	}
	w.must(remove(3))
	if err := remove(store.AnyVersion); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("deleting twice: %v", err)
	}
	if _, err := w.PolicyVersion(ctx(t), org, "web", 3); err != nil {
		t.Errorf("a version of a deleted policy: %v", err)
	}
	p, _, err := w.Policy(by, "web", `{"n":4}`, 0)
	if err != nil || p.Version != 4 {
		t.Errorf("after a deletion: version %d, %v", p.Version, err)
	}
	_, _, err = w.Policy(by, store.Ceiling, `{"rules":[]}`, 0)
	w.must(err)
	if all, _ := w.Policies(ctx(t), org); len(all) != 1 || all[0].Name != "web" {
		t.Errorf("named policies: %+v", all)
	}
}

func usedPolicyIsNotDeleted(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	_, _, err := w.Policy(by, "web", `{}`, 0)
	w.must(err)
	b := w.Sandbox(by, "web")
	remove := func() error {
		_, err := w.Change(ctx(t), by, func(tx *store.Tx) error {
			if err := tx.DeletePolicy(ctx(t), "web", store.AnyVersion); err != nil {
				return err
			}
			return tx.Record(ctx(t), audit.PolicyDelete, "policy:web", nil)
		})
		return err
	}
	if err := remove(); !errors.Is(err, store.ErrConflict) {
		t.Errorf("deleting a policy in use: %v", err)
	}
	_, err = w.Change(ctx(t), by, func(tx *store.Tx) error {
		b.Status = store.Terminated
		if _, err := tx.UpdateSandbox(ctx(t), b); err != nil {
			return err
		}
		return tx.Record(ctx(t), audit.SandboxDelete, b.ID, nil)
	})
	w.must(err)
	w.must(remove())
}

func keysAreKept(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	_, key, err := sso.NewKey()
	w.must(err)
	var made store.Key
	create := func() error {
		_, err := w.Change(ctx(t), by, func(tx *store.Tx) (err error) {
			made, err = tx.CreateKey(ctx(t), store.Key{ID: key.ID, Name: "ci", Prefix: key.Prefix, Hash: key.Hash[:],
				Scopes: []sso.Scope{sso.ScopeRead}, Policies: []string{"web"}, ExpiresAt: tx.Now().Add(time.Hour)})
			if err != nil {
				return err
			}
			return tx.Record(ctx(t), audit.KeyCreate, key.ID, nil)
		})
		return err
	}
	w.must(create())
	want := made
	if err := create(); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the same key twice: %v", err)
	}
	got, err := w.KeyForLogin(ctx(t), key.ID)
	w.must(err)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	now := want.CreatedAt
	if !got.Live(now) || got.Live(now.Add(time.Hour)) {
		t.Error("a key must live until it expires, and not then")
	}
	w.must(w.TouchKey(ctx(t), key.ID, now.Add(time.Minute)))
	_, err = w.Change(ctx(t), by, func(tx *store.Tx) error {
		if err := tx.RevokeKey(ctx(t), key.ID); err != nil {
			return err
		}
		return tx.Record(ctx(t), audit.KeyDelete, key.ID, nil)
	})
	w.must(err)
	got, err = w.KeyForLogin(ctx(t), key.ID)
	if err != nil || got.Live(now) || !got.LastUsed.Equal(now.Add(time.Minute)) {
		t.Errorf("a revoked key: %+v, %v", got, err)
	}
	if all, _ := w.Keys(ctx(t), by.Principal.Org); len(all) != 0 {
		t.Errorf("revoked keys are listed: %+v", all)
	}
}

func sandboxesAreKept(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	first, second := w.Sandbox(by, ""), w.Sandbox(by, "")
	_, err := w.Change(ctx(t), by, func(tx *store.Tx) (err error) {
		first.Status, first.Reason, first.Addr, first.RunscID = store.Failed, "out_of_memory", "10.200.0.3", "pr-1"
		first.Incarnation, first.Generation, first.MinRevision = 2, 5, 9
		first.Metrics = store.Metrics{TotalMS: 12, Phases: []store.Phase{{Name: "a", MS: 3}}}
		if first, err = tx.UpdateSandbox(ctx(t), first); err != nil {
			return err
		}
		return tx.RecordOutcome(ctx(t), audit.SandboxEnd, first.ID, audit.Failure, map[string]string{"reason": "out_of_memory"})
	})
	w.must(err)
	got, err := w.Store.Sandbox(ctx(t), by.Principal.Org, first.ID)
	w.must(err)
	if diff := cmp.Diff(first, got); diff != "" {
		t.Errorf("(-written +read):\n%s", diff)
	}
	if got.EndedAt.IsZero() {
		t.Error("an ended sandbox has no end")
	}
	live, err := w.LiveSandboxes(ctx(t))
	if err != nil || len(live) != 1 || live[0].ID != second.ID {
		t.Errorf("live: %+v, %v", live, err)
	}
	if all, _ := w.Sandboxes(ctx(t), by.Principal.Org, time.Time{}, 9); len(all) != 2 || all[0].ID != second.ID {
		t.Errorf("listed: %+v", all)
	}
	if all, _ := w.Sandboxes(ctx(t), by.Principal.Org, time.Now().Add(time.Hour), 9); len(all) != 1 {
		t.Errorf("listed without ended ones: %+v", all)
	}
}

func sandboxLimitHoldsInParallel(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	made := 0
	for _, err := range together(10, func(int) error {
		_, err := w.Change(ctx(t), by, func(tx *store.Tx) error {
			b, err := tx.CreateSandbox(ctx(t), store.Sandbox{ID: store.NewID("sbx"), Status: store.Creating}, 3)
			if err != nil {
				return err
			}
			return tx.Record(ctx(t), audit.SandboxCreate, b.ID, nil)
		})
		return err
	}) {
		if err == nil {
			made++
		} else if !errors.Is(err, store.ErrLimit) {
			t.Error(err)
		}
	}
	if made != 3 {
		t.Errorf("made %d with a limit of 3", made)
	}
}

func idempotencyKeysAreClaimed(t *testing.T, open Open) {
	now := time.Now()
	w := NewWorld(t, open, store.Options{Now: func() time.Time { return now }})
	one, two := w.Org("one").Principal.Org, w.Org("two").Principal.Org
	begin := func(org, request string) (*store.Remembered, error) {
		return w.Begin(ctx(t), org, "k", []byte(request), time.Hour)
	}
	first := 0
	for _, err := range together(6, func(int) error { _, err := begin(one, "a"); return err }) {
		if err == nil {
			first++
		} else if !errors.Is(err, store.ErrInProgress) {
			t.Error(err)
		}
	}
	if first != 1 {
		t.Errorf("%d requests were the first", first)
	}
	if m, err := begin(two, "b"); m != nil || err != nil {
		t.Errorf("another org with the same key: %v, %v", m, err)
	}
	want := store.Remembered{Status: 201, Header: `{}`, Body: []byte("made")}
	w.must(w.Finish(ctx(t), one, "k", want))
	if m, err := begin(one, "a"); err != nil || cmp.Diff(&want, m) != "" {
		t.Errorf("the same request: %v, %v", m, err)
	}
	if _, err := begin(one, "c"); !errors.Is(err, store.ErrOtherRequest) {
		t.Errorf("another request: %v", err)
	}
	w.must(w.Abandon(ctx(t), two, "k"))
	if m, err := begin(two, "c"); m != nil || err != nil {
		t.Errorf("after giving it back: %v, %v", m, err)
	}
	now = now.Add(2 * time.Hour)
	if m, err := begin(one, "c"); m != nil || err != nil {
		t.Errorf("after its time: %v, %v", m, err)
	}
}

func feedStateIsOneSnapshot(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	one, two := w.Org("one"), w.Org("two")
	_, _, err := w.Policy(one, "web", `{"rules":[]}`, 0)
	w.must(err)
	_, rev, err := w.Policy(two, store.Ceiling, `{"rules":[7]}`, 0)
	w.must(err)
	b := w.Sandbox(one, "web")
	f, err := w.FeedState(ctx(t))
	w.must(err)
	if f.Revision != rev || len(f.Orgs) != 2 {
		t.Fatalf("revision %d, want %d; %d orgs", f.Revision, rev, len(f.Orgs))
	}
	by := map[string]store.OrgPolicies{}
	for _, o := range f.Orgs {
		by[o.Org] = o
	}
	if o := by[one.Principal.Org]; o.Ceiling.Version != 0 || len(o.Named) != 1 || len(o.Sandboxes) != 1 || o.Sandboxes[0].Sandbox != b.ID || o.Sandboxes[0].Policy != "web" {
		t.Errorf("org one: %+v", o)
	}
	if o := by[two.Principal.Org]; string(o.Ceiling.Document) != `{"rules":[7]}` || len(o.Named)+len(o.Sandboxes) != 0 {
		t.Errorf("org two: %+v", o)
	}
}
