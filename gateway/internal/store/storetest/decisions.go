package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
)

// flow is the opening line of a connection.
func flow(by store.By, host string, at time.Time) decisions.Decision {
	d := decision(by, host, at)
	d.Verdict, d.Reason, d.Level = "allow", "allowed", "sni"
	return d
}

func ended(d decisions.Decision) decisions.Decision {
	d.Closed, d.Status, d.BytesIn = true, 200, 7
	return d
}

// tailSeesEachEndOnce: who follows sees every opening and every end, or one line for both if they came together.
func tailSeesEachEndOnce(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by, other := w.Org("one"), w.Org("two")
	org := by.Principal.Org
	var last int64
	follow := func() (seen []string) {
		t.Helper()
		all, err := w.DecisionsAfter(ctx(t), org, last, 100)
		w.must(err)
		for _, d := range all {
			last = d.Seq
			seen = append(seen, fmt.Sprint(d.Host, " ", d.Closed))
		}
		return seen
	}
	a, b := flow(by, "a.test", time.Now()), flow(by, "b.test", time.Now())
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{a}))
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{flow(other, "other.test", time.Now())}))
	if got := follow(); cmp.Diff([]string{"a.test false"}, got) != "" {
		t.Errorf("the opening: %v", got)
	}
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{b, ended(b), ended(a)}))
	if got := follow(); cmp.Diff([]string{"b.test true", "a.test true"}, got) != "" {
		t.Errorf("the ends: %v", got)
	}
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{a, ended(a), b}))
	if got := follow(); len(got) != 0 {
		t.Errorf("sent again: %v", got)
	}
	h, err := w.Holdings(ctx(t), org)
	w.must(err)
	theirs, err := w.Holdings(ctx(t), other.Principal.Org)
	w.must(err)
	if h.Count != 2 || h.Bytes <= 0 || theirs.Count != 1 || theirs.LastSeq != 1 {
		t.Errorf("held: %+v; of the other org: %+v", h, theirs)
	}
}

// lossIsWhatIsMissing ships numbers in ways that really happen.
func lossIsWhatIsMissing(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	org := by.Principal.Org
	send := func(spool string, upto uint64, nums ...uint64) {
		t.Helper()
		w.must(w.AppendShipment(ctx(t), store.Receipt{Node: "n1", Spool: spool, Life: 1, Run: "r", Nums: map[string][]uint64{org: nums},
			Orgs: map[string]decisions.OrgState{org: {Upto: upto, Reserved: 100, Budget: 1}}}))
	}
	want := func(when string, i int, lost uint64, missing ...store.Span) {
		t.Helper()
		all, err := w.Numbers(ctx(t), org)
		w.must(err)
		if len(all) <= i {
			t.Fatalf("%s: %d spools", when, len(all))
		}
		if n := all[i]; n.Lost() != lost || cmp.Diff(missing, n.Missing) != "" {
			t.Errorf("%s: %d lost, missing %v; want %d, %v", when, n.Lost(), n.Missing, lost, missing)
		}
	}
	send("s1", 3, 1, 2, 3)
	want("all there", 0, 0)
	send("s1", 3, 1, 2, 3)
	want("sent again", 0, 0)
	send("s1", 8, 5, 7)
	want("with gaps, the last one behind every row", 0, 3, store.Span{First: 4, Last: 4}, store.Span{First: 6, Last: 6}, store.Span{First: 8, Last: 8})
	send("s1", 7, 7, 6)
	want("one comes late", 0, 2, store.Span{First: 4, Last: 4}, store.Span{First: 8, Last: 8})
	send("s1", 7, 6)
	want("and again", 0, 2, store.Span{First: 4, Last: 4}, store.Span{First: 8, Last: 8})
	send("s1", 9)
	want("nothing but a loss", 0, 3, store.Span{First: 4, Last: 4}, store.Span{First: 8, Last: 9})
	send("s2", 1, 1)
	all, err := w.Numbers(ctx(t), org)
	w.must(err)
	for _, n := range all {
		if n.EndedAt.IsZero() != (n.ID == "s2") {
			t.Errorf("spool %s: ended at %v", n.ID, n.EndedAt)
		}
	}
	if other := w.Org("two"); true {
		if all, err := w.Numbers(ctx(t), other.Principal.Org); err != nil || len(all) != 0 {
			t.Errorf("another org's books: %+v, %v", all, err)
		}
	}
	// Whatever can't be kept is not received.
	w.must(w.AppendShipment(ctx(t), store.Receipt{Node: "n1", Spool: "s3", Nums: map[string][]uint64{store.NewID("org"): {1}},
		Orgs: map[string]decisions.OrgState{store.NewID("org"): {Upto: 4}}}))
}

func oldestDecisionsGoFirst(t *testing.T, open Open) {
	now := time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC)
	w := NewWorld(t, open, store.Options{Now: func() time.Time { return now }})
	by, other := w.Org("one"), w.Org("two")
	org := by.Principal.Org
	var batch []decisions.Decision
	for i := range 20 {
		batch = append(batch, decision(by, fmt.Sprintf("h%02d.test", i), now.Add(time.Duration(i-10)*24*time.Hour-25*24*time.Hour)))
	}
	w.must(w.AppendDecisions(ctx(t), batch))
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{decision(other, "old.test", now.Add(-29*24*time.Hour))}))
	trim := func(most int64) (gone int64) {
		t.Helper()
		for {
			h, err := w.Holdings(ctx(t), org)
			w.must(err)
			n, err := w.TrimDecisions(ctx(t), h, most)
			w.must(err)
			if gone += n; n == 0 {
				return gone
			}
		}
	}
	if n := trim(1 << 40); n != 5 {
		t.Errorf("%d were older than 30 days, want 5", n)
	}
	h, err := w.Holdings(ctx(t), org)
	w.must(err)
	if h.Count != 15 || h.Forgotten != 5 || h.ForgottenSeq != 5 || !h.ForgottenBefore.After(batch[4].Time) || h.ForgottenBefore.After(batch[5].Time) {
		t.Errorf("after the days: %+v", h)
	}
	if n := trim(h.Bytes / 3); n != 10 {
		t.Errorf("%d went for the budget, want 10 of 15", n)
	}
	left, err := w.Decisions(ctx(t), org, store.DecisionFilter{Limit: 100})
	w.must(err)
	if h, _ = w.Holdings(ctx(t), org); len(left) != 5 || left[4].Host != "h15.test" || h.Count != 5 || h.ForgottenSeq != 15 {
		t.Errorf("%d are left, the oldest is %s: %+v", len(left), left[len(left)-1].Host, h)
	}
	var sum int64
	for _, d := range left {
		sum += int64(len(d.Host)) // each row has as many bytes as the others
	}
	if h.Bytes <= 0 || h.Bytes%5 != 0 || sum != 5*int64(len("h00.test")) {
		t.Errorf("five equal rows hold %d bytes", h.Bytes)
	}
	if theirs, _ := w.Decisions(ctx(t), other.Principal.Org, store.DecisionFilter{Limit: 9}); len(theirs) != 1 {
		t.Error("another org's decision went")
	}
	w.must(w.Shrink(ctx(t)))
}

func deadFlowsAreEnded(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	org := by.Principal.Org
	ship := func(spool string, life int64, list ...decisions.Decision) {
		t.Helper()
		got := store.Receipt{Node: "n1", Spool: spool, Life: life, Run: fmt.Sprint(life), Orgs: map[string]decisions.OrgState{org: {}}}
		for _, d := range list {
			got.Rows = append(got.Rows, store.Spooled{Decision: d, Spool: spool, Life: life})
		}
		w.must(w.AppendShipment(ctx(t), got))
	}
	at := time.Now()
	lookup := flow(by, "dns.test", at)
	lookup.Layer = "dns"
	gone, done, denied, lives := flow(by, "gone.test", at), flow(by, "done.test", at), decision(by, "denied.test", at), flow(by, "lives.test", at)
	elsewhere := flow(by, "elsewhere.test", at)
	w.must(w.AppendShipment(ctx(t), store.Receipt{Node: "n2", Spool: "other", Life: 1, Orgs: map[string]decisions.OrgState{org: {}},
		Rows: []store.Spooled{{Decision: elsewhere, Spool: "other", Life: 1}}}))
	ship("before", 9, flow(by, "replaced.test", at))
	ship("s1", 1, gone, done, denied, lookup)
	ship("s1", 1, ended(done))
	ship("s1", 2, lives)
	if n, err := w.EndDead(ctx(t), "s1", 2); err != nil || n != 2 {
		t.Errorf("%d flows were ended, %v; want that of life 1 and that of the spool before", n, err)
	}
	if n, err := w.EndDead(ctx(t), "s1", 2); err != nil || n != 0 {
		t.Errorf("%d flows were ended twice, %v", n, err)
	}
	all, err := w.Decisions(ctx(t), org, store.DecisionFilter{Limit: 100})
	w.must(err)
	for _, d := range all {
		want := map[string]string{"gone.test": "edge_died", "replaced.test": "edge_died"}[d.Host]
		if d.Error != want || d.Closed != (want != "" || d.Host == "done.test") {
			t.Errorf("%s: closed %v, error %q", d.Host, d.Closed, d.Error)
		}
	}
	w.must(w.Settled(ctx(t), "s1", 2))
	if p, err := w.Store.Spool(ctx(t), "s1"); err != nil || p.Settled != 2 || p.Life != 2 {
		t.Errorf("the spool: %+v, %v", p, err)
	}
}

func decisionSettingsAreKept(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by, other := w.Org("one"), w.Org("two")
	put := func(want store.DecisionSettings, expected int64) (got store.DecisionSettings, err error) {
		_, err = w.Change(ctx(t), by, func(tx *store.Tx) error {
			if got, err = tx.PutDecisionSettings(ctx(t), want, expected); err != nil {
				return err
			}
			return tx.Record(ctx(t), audit.SettingsUpdate, "decisions", nil)
		})
		return got, err
	}
	h, err := w.Holdings(ctx(t), by.Principal.Org)
	if err != nil || h.BestEffort || h.Paths != "full" || h.KeepDays != 30 || h.Version != 0 {
		t.Errorf("of a fresh org: %+v, %v", h, err)
	}
	if got, err := put(store.DecisionSettings{BestEffort: true, Paths: "none", KeepDays: 7}, 0); err != nil || got.Version != 1 {
		t.Errorf("stored as %+v, %v", got, err)
	}
	if _, err := put(store.DecisionSettings{Paths: "full", KeepDays: 30}, 0); !errors.Is(err, store.ErrVersion) {
		t.Errorf("a stale version: %v", err)
	}
	w.must(w.AppendDecisions(ctx(t), []decisions.Decision{decision(by, "a.test", time.Now())}))
	if h, err = w.Holdings(ctx(t), by.Principal.Org); err != nil || !h.BestEffort || h.Paths != "none" || h.KeepDays != 7 || h.Count != 1 {
		t.Errorf("read back: %+v, %v", h, err)
	}
	if h, err = w.Holdings(ctx(t), other.Principal.Org); err != nil || h.BestEffort || h.Version != 0 {
		t.Errorf("another org's: %+v, %v", h, err)
	}
	f, err := w.FeedState(ctx(t))
	w.must(err)
	for _, o := range f.Orgs {
		if o.Decisions.BestEffort != (o.Org == by.Principal.Org) || o.Decisions.Paths == "" {
			t.Errorf("in the feed: %+v", o.Decisions)
		}
	}
}
