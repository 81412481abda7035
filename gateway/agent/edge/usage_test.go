package edge

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/limits"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/policies"
)

// nobody judges: these tests only count.
type nobody struct{}

func (nobody) Snapshot(egress.Binding) (*policies.Snapshot, uint64, error) {
	return nil, 0, errors.New("none")
}

func counting(t *testing.T, dir string) (*usage, *flows.Table) {
	t.Helper()
	table, err := flows.New(flows.Config{Policies: nobody{}, Bindings: egress.NewBindings(nil), Floor: func() *policies.Floor { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	u, err := openUsage(dir, table, time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return u, table
}

func count(table *flows.Table, org string, n int) {
	table.Meter(egress.Binding{Org: org, Sandbox: "sbx_1"}).In(context.Background(), n)
}

func TestCountOutlivesTheProcess(t *testing.T) {
	dir, month := t.TempDir(), flows.MonthOf(time.Now())
	first, table := counting(t, dir)
	count(table, "org_1", 100)
	first.save()
	count(table, "org_1", 50) // lost with the process
	second, table := counting(t, dir)
	if second.id != first.id {
		t.Error("the file has another name now: what it counted would count twice")
	}
	count(table, "org_1", 7)
	if got, want := table.Usage(), []flows.Usage{{Org: "org_1", Month: month, In: 107}}; !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	// A damaged file is no reason to stand still, but begins a count of its own.
	if err := os.WriteFile(filepath.Join(dir, "usage.json"), []byte(`{"id":`), 0o600); err != nil {
		t.Fatal(err)
	}
	third, table := counting(t, dir)
	if third.id == first.id || len(table.Usage()) != 0 {
		t.Errorf("after a damage: %s, %+v", third.id, table.Usage())
	}
}

// ledger plays control: it keeps the highest count of each source.
type ledger struct {
	mu    sync.Mutex
	rows  map[string]flows.Usage // by source and org
	calls int
	lose  bool // the next answers
	other int64
}

func (l *ledger) mux() *link.Mux {
	mux := link.NewMux()
	link.Handle(mux, role.ControlUsage, func(_ context.Context, r role.UsageReport) (role.UsageKnown, error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls++
		var known role.UsageKnown
		for _, row := range r.Rows {
			key := r.Source + row.Org + row.Month
			have := l.rows[key]
			have.Org, have.Month, have.In, have.Out = row.Org, row.Month, max(have.In, row.In), max(have.Out, row.Out)
			l.rows[key] = have
			known.Rows = append(known.Rows, role.KnownUsage{Usage: have, Elsewhere: l.other})
		}
		if l.lose {
			return known, errors.New("lost")
		}
		return known, nil
	})
	return mux
}

func (l *ledger) total() (n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, row := range l.rows {
		n += row.In + row.Out
	}
	return n
}

// TestCountIsToldOnce: an edge that is cut off, begins anew or hears no answer tells the same count again, never an additional one.
func TestCountIsToldOnce(t *testing.T) {
	l := &ledger{rows: map[string]flows.Usage{}, lose: true}
	w := newWorld(t)
	first := talk(t, w.supervisor, "control", l.mux())
	count(w.flows, org, 100)
	processtest.Await(t, "two reports", func() bool { l.mu.Lock(); defer l.mu.Unlock(); return l.calls >= 2 })
	l.mu.Lock()
	l.lose = false
	l.mu.Unlock()
	first.Close()
	count(w.flows, org, 11)
	talk(t, w.supervisor, "control", l.mux())
	processtest.Await(t, "the whole count", func() bool { return l.total() == 111 })
	if err := w.stop(t.Context()); err != nil {
		t.Error(err)
	}
	if n := l.total(); n != 111 {
		t.Errorf("told %d of 111", n)
	}
}

// TestQuotaHoldsWithoutControl: what is used elsewhere comes with the feed and with answers; the edge enforces by itself.
func TestQuotaHoldsWithoutControl(t *testing.T) {
	w := newWorld(t)
	month := flows.MonthOf(time.Now())
	add := func() error {
		remove, err := w.flows.Add(flows.Flow{ID: "flo_1", Binding: egress.Binding{Org: org, Sandbox: sbx}, Kill: func(policies.Reason) {}})
		if err == nil {
			remove()
		}
		return err
	}
	p := policy(1, "good.test")
	p.Orgs[0].Limits = feed.Limits{Limits: limits.Limits{MonthlyQuota: 1000}, Month: month,
		Counted: []feed.Counted{{Source: "other", In: 500}, {Source: w.usage.id, In: 300}}} // its own, as control had it once
	if err := w.holder.Apply(p); err != nil {
		t.Fatal(err)
	}
	count(w.flows, org, 499)
	if err := add(); err != nil {
		t.Errorf("999 of 1000 are used: %v", err)
	}
	count(w.flows, org, 1)
	if err := add(); !errors.Is(err, flows.ErrQuota) {
		t.Errorf("all is used: %v", err)
	}
	// A new month that control has not heard of, or an old word on the month before, closes nothing.
	p.Revision, p.Orgs[0].Limits.Month = 2, "2001-01"
	if err := w.holder.Apply(p); err != nil {
		t.Fatal(err)
	}
	if err := add(); err != nil {
		t.Errorf("by the count of another month: %v", err)
	}
	// An answer that knows of more elsewhere closes it again.
	l := &ledger{rows: map[string]flows.Usage{}, other: 500}
	talk(t, w.supervisor, "control", l.mux())
	processtest.Await(t, "the answer", func() bool { return errors.Is(add(), flows.ErrQuota) })
}
