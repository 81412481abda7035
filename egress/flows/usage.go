package flows

import (
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// MonthOf is the month whose quota a time belongs to, like 2026-12: the calendar's, in UTC.
func MonthOf(t time.Time) string { return t.UTC().Format("2006-01") }

// A Usage is what the table counted of an org in a month.
type Usage = egress.Usage

// usage counts the bytes of one org in the current month. Months that are over wait in past until somebody has them.
type usage struct {
	in, out atomic.Int64
	left    atomic.Int64 // what of the quota is this table's to use, counted from the month's first byte here; MaxInt64: no quota

	month string // of in and out; the table's lock guards it and past
	past  []Usage
}

// bound says what the quota leaves.
func (u *usage) bound(l Limits) {
	left := int64(math.MaxInt64)
	if l.Quota > 0 {
		left = l.Quota
		if l.Month == u.month {
			left -= l.Elsewhere
		}
	}
	u.left.Store(left)
}

func (u *usage) sum() int64 { return u.in.Load() + u.out.Load() }

// over reports whether the quota is used up.
func (u *usage) over() bool { return u.sum() >= u.left.Load() }

// roll begins a new month.
func (u *usage) roll(org, month string) {
	if u.month == month {
		return
	}
	if u.month != "" {
		if in, out := u.in.Swap(0), u.out.Swap(0); in+out > 0 {
			u.past = append(u.past, Usage{Org: org, Month: u.month, In: in, Out: out})
		}
	}
	u.month = month
	if i := slices.IndexFunc(u.past, func(p Usage) bool { return p.Month == month }); i >= 0 { // the clock was ahead for a while
		u.in.Add(u.past[i].In)
		u.out.Add(u.past[i].Out)
		u.past = slices.Delete(u.past, i, i+1)
	}
}

// Usage is what every org moved: in this month, and in those before that were not forgotten, in order.
func (t *Table) Usage() []Usage {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.roll()
	var all []Usage
	for id, o := range t.orgs {
		all = append(all, o.usage.past...)
		if in, out := o.usage.in.Load(), o.usage.out.Load(); in+out > 0 {
			all = append(all, Usage{Org: id, Month: o.usage.month, In: in, Out: out})
		}
	}
	slices.SortFunc(all, func(a, b Usage) int { return strings.Compare(a.Org+" "+a.Month, b.Org+" "+b.Month) })
	return all
}

// Counted makes sure that the table's count is at least what was counted before: by this table's forerunner, or by this one as
// others remember it.
func (t *Table) Counted(before []Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.roll()
	for _, b := range before {
		o := t.org(b.Org)
		if b.Month == o.usage.month {
			raise(&o.usage.in, b.In)
			raise(&o.usage.out, b.Out)
			continue
		}
		if b.Month > o.usage.month {
			continue // the clock went back: that month is still to come
		}
		i := slices.IndexFunc(o.usage.past, func(p Usage) bool { return p.Month == b.Month })
		if i < 0 {
			o.usage.past = append(o.usage.past, b)
		} else {
			o.usage.past[i].In, o.usage.past[i].Out = max(o.usage.past[i].In, b.In), max(o.usage.past[i].Out, b.Out)
		}
	}
}

func raise(n *atomic.Int64, least int64) {
	if d := least - n.Load(); d > 0 {
		n.Add(d)
	}
}

// Forget drops months before the current one, once somebody has them.
func (t *Table) Forget(known []Usage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, k := range known {
		if o := t.orgs[k.Org]; o != nil && k.Month != o.usage.month {
			o.usage.past = slices.DeleteFunc(o.usage.past, func(p Usage) bool { return p == k })
		}
	}
}

// roll has every org count in the current month. The caller holds the lock.
func (t *Table) roll() {
	month := MonthOf(t.cfg.Now())
	for id, o := range t.orgs {
		if o.usage.month != month {
			o.usage.roll(id, month)
			o.usage.bound(o.limits)
		}
	}
}

// SetLimits replaces the limits of all orgs; those that are not named have the table's own. What an org has too much of already it
// keeps, but for a used up quota: that ends its flows.
func (t *Table) SetLimits(byOrg map[string]Limits) {
	t.mu.Lock()
	t.byOrg = byOrg
	for id, o := range t.orgs {
		o.set(t.limitsOf(id))
	}
	t.mu.Unlock()
	t.enforce()
}

// limitsOf are the limits of an org. The caller holds the lock.
func (t *Table) limitsOf(id string) Limits {
	if l, ok := t.byOrg[id]; ok {
		return l.withDefaults()
	}
	return t.cfg.Limits
}

// enforce ends the flows of orgs whose quota is used up.
func (t *Table) enforce() {
	t.mu.Lock()
	t.roll()
	over := make(map[string]bool)
	for id, o := range t.orgs {
		if o.count > 0 && o.usage.over() {
			over[id] = true
		}
	}
	t.mu.Unlock()
	if len(over) == 0 {
		return
	}
	for _, e := range t.entries(func(f *Flow) bool { return over[f.Binding.Org] && !f.Local }) {
		e.kill(policies.ReasonQuota)
	}
}
