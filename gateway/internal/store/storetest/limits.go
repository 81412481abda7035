package storetest

import (
	"errors"
	"testing"

	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/limits"
)

func limitsAreKept(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	one, two := w.Org("one"), w.Org("two")
	put := func(by store.By, l limits.Limits, expected int64) (store.OrgLimits, error) {
		var kept store.OrgLimits
		_, err := w.Change(ctx(t), by, func(tx *store.Tx) (err error) {
			if kept, err = tx.PutLimits(ctx(t), l, expected); err != nil {
				return err
			}
			return tx.Record(ctx(t), audit.LimitsUpdate, "limits", nil)
		})
		return kept, err
	}
	if l, err := w.Limits(ctx(t), one.Principal.Org); err != nil || l != (store.OrgLimits{}) {
		t.Errorf("before any: %+v, %v", l, err)
	}
	kept, err := put(one, limits.Limits{MonthlyQuota: 1 << 40, ConnectionsPerOrg: 7}, 0)
	w.must(err)
	if kept.Version != 1 {
		t.Errorf("kept %+v", kept)
	}
	if _, err := put(one, limits.Limits{}, 0); !errors.Is(err, store.ErrVersion) {
		t.Errorf("against a stale version: %v", err)
	}
	if l, err := w.Limits(ctx(t), one.Principal.Org); err != nil || l != kept || l.MonthlyQuota != 1<<40 {
		t.Errorf("%+v, %v", l, err)
	}
	kept, err = put(one, limits.Limits{}, store.AnyVersion)
	w.must(err)
	if l, err := w.Limits(ctx(t), one.Principal.Org); err != nil || l != kept || l.Version != 2 || l.Limits != (limits.Limits{}) {
		t.Errorf("%+v, %v", l, err)
	}
	if l, err := w.Limits(ctx(t), two.Principal.Org); err != nil || l.Version != 0 {
		t.Errorf("the other org has %+v, %v", l, err)
	}
}

func usageIsCountedOnce(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	one, two := w.Org("one").Principal.Org, w.Org("two").Principal.Org
	count := func(source string, u ...flows.Usage) {
		t.Helper()
		w.must(w.CountUsage(ctx(t), source, u))
	}
	count("edge_a", flows.Usage{Org: one, Month: "2026-12", In: 10, Out: 1}, flows.Usage{Org: two, Month: "2026-12", In: 5}, flows.Usage{Org: "org_unknown", Month: "2026-12", In: 5})
	count("edge_a", flows.Usage{Org: one, Month: "2026-12", In: 10, Out: 1}) // again, as after a lost answer
	count("edge_a", flows.Usage{Org: one, Month: "2026-12", In: 12, Out: 3})
	count("edge_a", flows.Usage{Org: one, Month: "2026-12", In: 11, Out: 2}) // late
	count("edge_b", flows.Usage{Org: one, Month: "2026-12", In: 100, Out: 0}, flows.Usage{Org: one, Month: "2026-11", In: 1})
	got, err := w.Usage(ctx(t), one, "2026-12")
	w.must(err)
	if len(got) != 2 || got[0].Source != "edge_a" || got[0].In != 12 || got[0].Out != 3 || got[1].Source != "edge_b" || got[1].In != 100 {
		t.Errorf("%+v", got)
	}
	months, err := w.UsageByMonth(ctx(t), one, 12)
	w.must(err)
	if len(months) != 2 || months[0] != (flows.Usage{Org: one, Month: "2026-12", In: 112, Out: 3}) || months[1].In != 1 {
		t.Errorf("%+v", months)
	}
	if months, err = w.UsageByMonth(ctx(t), two, 12); err != nil || len(months) != 1 || months[0].In != 5 {
		t.Errorf("the other org: %+v, %v", months, err)
	}
}

func quotaIsNotedOnce(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	one, two := w.Org("one"), w.Org("two")
	note := func(by store.By, month string, state limits.State) (first bool) {
		t.Helper()
		_, err := w.Change(ctx(t), by, func(tx *store.Tx) (err error) {
			if first, err = tx.NoteQuota(ctx(t), month, state); err != nil {
				return err
			}
			return tx.Record(ctx(t), audit.QuotaWarning, month, nil)
		})
		w.must(err)
		return first
	}
	for i, c := range []struct {
		by    store.By
		month string
		state limits.State
		first bool
	}{
		{one, "2026-12", limits.Warning, true}, {one, "2026-12", limits.Warning, false}, {one, "2026-12", limits.Used, true},
		{one, "2027-01", limits.Warning, true}, {two, "2026-12", limits.Warning, true},
	} {
		if got := note(c.by, c.month, c.state); got != c.first {
			t.Errorf("%d: first %v", i, got)
		}
	}
	for month, want := range map[string]bool{"2026-12": true, "2027-02": false} {
		if noted, err := w.QuotaNoted(ctx(t), one.Principal.Org, month, limits.Warning); err != nil || noted != want {
			t.Errorf("%s: %v, %v", month, noted, err)
		}
	}
}
