package server

import (
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/limits"
	"portreeve.dev/gateway/role"
)

// TestQuotaIsNoticedOnce: the warning and the end of a quota are written down once a month each, whoever counts how often.
func TestQuotaIsNoticedOnce(t *testing.T) {
	c, w := newControl(t)
	c.setup.Egress = limits.Limits{MonthlyQuota: 1000}
	one, two := w.Org("one").Principal.Org, w.Org("two").Principal.Org
	month := flows.MonthOf(time.Now())
	report := func(source string, in int64) role.UsageKnown {
		t.Helper()
		known, err := c.keepUsage(t.Context(), role.UsageReport{Source: source, Rows: []egress.Usage{{Org: one, Month: month, In: in}, {Org: two, Month: month, In: 1}, {Org: one, Month: "2001-01", In: 1 << 40}}})
		if err != nil {
			t.Fatal(err)
		}
		return known
	}
	entries := func(org string) (found []audit.Action) {
		t.Helper()
		all, err := c.store.AuditChain(t.Context(), org, 1, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			if e.Action == audit.QuotaWarning || e.Action == audit.QuotaUsed {
				found = append(found, e.Action)
			}
		}
		return found
	}
	report("edge_a", 500)
	if known := report("edge_b", 299); known.Rows[0].In != 299 || known.Rows[0].Elsewhere != 500 || len(entries(one)) != 0 {
		t.Errorf("at 799 of 1000: %+v, %v", known.Rows[0], entries(one))
	}
	for range 3 {
		report("edge_b", 300)
	}
	if got := entries(one); len(got) != 1 || got[0] != audit.QuotaWarning {
		t.Errorf("at 800 of 1000: %v", got)
	}
	for range 3 {
		report("edge_a", 700)
	}
	if got := entries(one); len(got) != 2 || got[1] != audit.QuotaUsed {
		t.Errorf("at 1000 of 1000: %v", got)
	}
	if got := entries(two); len(got) != 0 {
		t.Errorf("the other org: %v", got)
	}
	l, err := c.limitsOf(t.Context(), one, store.OrgLimits{})
	if err != nil || l.MonthlyQuota != 1000 || l.Month != month || len(l.Counted) != 2 {
		t.Errorf("the feed says %+v, %v", l, err)
	}
	if e := l.Edge("edge_b"); e.Elsewhere != 700 || e.Quota != 1000 {
		t.Errorf("to edge_b: %+v", e)
	}
	if e := l.Edge("edge_new"); e.Elsewhere != 1000 {
		t.Errorf("to a new edge: %+v", e)
	}
}
