package flows_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"portreeve.dev/egress/fair"
	"portreeve.dev/egress/flows"
	"portreeve.dev/policies"
)

// refused wants the limit, as a verdict that says how much there was.
func (w *world) refused(t *testing.T, f flows.Flow, want *flows.LimitError, says string) {
	t.Helper()
	_, err := w.Add(f)
	var limit *flows.LimitError
	if !errors.Is(err, want) || !errors.As(err, &limit) {
		t.Fatalf("%v, want %v", err, want)
	}
	if v := limit.Verdict; v.Allowed() || v.Reason != want.Verdict.Reason || v.Message != says {
		t.Errorf("verdict %+v, want one that says %q", v, says)
	}
}

func TestDestinationCap(t *testing.T) {
	w := newWorld(t, flows.Config{Limits: flows.Limits{PerDestination: 2}})
	remove := w.add(t, w.flow("1", 0, "a.test"))
	w.add(t, w.flow("2", 1, "a.test"))
	w.refused(t, w.flow("3", 0, "a.test"), flows.ErrDestinationFull,
		"The organisation has 2 connections to this destination, which is all that it may have; close some or reuse them.")
	w.add(t, w.flow("4", 0, "b.test"))
	other := w.flow("5", 0, "a.test")
	other.Request.Port = 8443
	w.add(t, other)
	w.add(t, w.flow("6", 2, "a.test")) // of another org
	remove()
	w.add(t, w.flow("7", 0, "a.test"))
}

func TestRequestsAreBounded(t *testing.T) {
	w := newWorld(t, flows.Config{Limits: flows.Limits{PerSandbox: 2}})
	leave := w.add(t, w.flow("1", 0, "a.test"))
	on := func(id string, box int) flows.Flow {
		f := w.flow(id, box, "a.test")
		f.Within, f.Remote = "1", netip.AddrPort{}
		f.Request.Stage, f.Request.Method, f.Request.Path = policies.StageRequest, "GET", "/"
		return f
	}
	remove := w.add(t, on("a", 0))
	w.add(t, on("b", 0))
	w.refused(t, on("c", 0), flows.ErrRequestsFull, "The sandbox has 2 requests under way, which is all that it may have; wait until some have ended.")
	relay, upstream := w.flow("relay", 0, "a.test"), on("upstream", 0)
	relay.Within, upstream.Upstream = "1", true
	w.add(t, relay)
	w.add(t, upstream)
	w.add(t, on("theirs", 1))
	remove()
	remove()
	leave() // the connection may end before what is on it
	last := w.add(t, on("d", 0))
	w.refused(t, on("e", 0), flows.ErrRequestsFull, "The sandbox has 2 requests under way, which is all that it may have; wait until some have ended.")
	last()
	w.add(t, on("f", 0))
}

func TestNewConnectionsPerSecond(t *testing.T) {
	now := time.Unix(1000, 0)
	w := newWorld(t, flows.Config{Limits: flows.Limits{NewPerSecond: 5}, Now: func() time.Time { return now }})
	for i := range 10 {
		w.add(t, w.flow(fmt.Sprint(i), 0, "a.test"))()
	}
	w.refused(t, w.flow("x", 0, "a.test"), flows.ErrTooFast, "The sandbox begins more than 5 connections per second; slow down and reuse connections.")
	w.add(t, w.flow("y", 1, "a.test"))
	now = now.Add(time.Second)
	for i := range 5 {
		w.add(t, w.flow(fmt.Sprint("later ", i), 0, "a.test"))
	}
	w.refused(t, w.flow("x", 0, "a.test"), flows.ErrTooFast, "The sandbox begins more than 5 connections per second; slow down and reuse connections.")
}

func TestDescriptorsAreShared(t *testing.T) {
	share := fair.New(8)
	w := newWorld(t, flows.Config{Descriptors: share})
	remove, second := w.add(t, w.flow("1", 0, "a.test")), w.add(t, w.flow("2", 1, "a.test"))
	for i := range 2 {
		w.add(t, w.flow(fmt.Sprint("more ", i), i%2, "a.test"))
	}
	w.refused(t, w.flow("x", 0, "a.test"), flows.ErrDescriptors, flows.ErrDescriptors.Verdict.Message)
	part := w.flow("part", 0, "a.test")
	part.Within = "1"
	w.add(t, part) // no socket of its own
	w.add(t, w.flow("theirs", 2, "a.test"))
	if w.TakeDescriptors("org_0", 1) {
		t.Error("an upstream connection beyond the share")
	}
	if _, ok := w.Meter(binding(0)).Pipes(); ok {
		t.Error("pipes beyond the share")
	}
	remove()
	second()
	w.add(t, w.flow("y", 0, "a.test"))
	if share.Used() != 4 {
		t.Errorf("%d taken by four connections", share.Used())
	}
}

func TestRefusedFlowTakesNothing(t *testing.T) {
	share := fair.New(100)
	w := newWorld(t, flows.Config{Descriptors: share, Limits: flows.Limits{PerSandbox: 1}})
	remove := w.add(t, w.flow("1", 0, "a.test"))
	for range 10 {
		if _, err := w.Add(w.flow("2", 0, "a.test")); err == nil {
			t.Fatal("a second one")
		}
	}
	remove()
	if share.Used() != 0 {
		t.Errorf("%d descriptors are taken by nobody", share.Used())
	}
	w.add(t, w.flow("3", 0, "a.test"))
}

func TestLimitsOfOneOrg(t *testing.T) {
	w := newWorld(t, flows.Config{Limits: flows.Limits{PerSandbox: 2}})
	w.SetLimits(map[string]flows.Limits{"org_0": {PerSandbox: 1}})
	w.add(t, w.flow("1", 0, "a.test"))
	w.refused(t, w.flow("2", 0, "a.test"), flows.ErrSandboxFull, "The sandbox has 1 connections, which is all that it may have; close some or reuse them.")
	w.add(t, w.flow("3", 2, "a.test"))
	w.add(t, w.flow("4", 2, "a.test"))
	w.SetLimits(nil)
	w.add(t, w.flow("5", 0, "a.test"))
}

// moved says how much time n bytes take, in pieces.
func moved(move func(context.Context, int), n, piece int) time.Duration {
	begun := time.Now()
	for ; n > 0; n -= piece {
		move(context.Background(), min(n, piece))
	}
	return time.Since(begun)
}

func TestBandwidthIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, flows.Config{})
		a, b, other := w.Meter(binding(0)), w.Meter(binding(1)), w.Meter(binding(2))
		if took := moved(a.In, 1<<30, 1<<20); took != 0 {
			t.Errorf("without a limit: %v", took)
		}
		w.SetLimits(map[string]flows.Limits{"org_0": {SandboxIn: 1 << 20, OrgOut: 1 << 20}})
		for _, piece := range []int{4 << 10, 32 << 10, 3 << 20} {
			// What may move at once is a quarter of a second's, and is full again after it.
			if took := moved(a.In, 9<<20, piece); took < 8500*time.Millisecond || took > 9*time.Second {
				t.Errorf("9 MiB at 1 MiB/s in pieces of %d: %v", piece, took)
			}
			time.Sleep(time.Second) // of the test's own clock
		}
		if took := moved(b.In, 128<<10, 4<<10); took != 0 {
			t.Errorf("the limit of one sandbox holds up another: %v", took)
		}
		if took := moved(a.Out, 1<<20, 4<<10) + moved(b.Out, 1<<20, 4<<10); took < 1700*time.Millisecond || took > 2*time.Second {
			t.Errorf("2 MiB of two sandboxes at 1 MiB/s of their org: %v", took)
		}
		if took := moved(other.Out, 1<<20, 4<<10); took != 0 {
			t.Errorf("the limit of one org holds up another: %v", took)
		}
		if n := a.Chunk(1 << 20); n != 256<<10 {
			t.Errorf("a copy in the kernel moves %d at once", n)
		}
		if n := other.Chunk(1 << 20); n != 1<<20 {
			t.Errorf("a copy in the kernel without a limit moves %d at once", n)
		}
	})
}

func TestWaitEndsWithItsFlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, flows.Config{})
		w.SetLimits(map[string]flows.Limits{"org_0": {SandboxOut: 1 << 10}})
		m := w.Meter(binding(0))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan time.Duration)
		begun := time.Now()
		go func() { m.Out(ctx, 1<<20); done <- time.Since(begun) }()
		time.Sleep(10 * time.Second) // of the test's own clock
		synctest.Wait()
		cancel()
		if took := <-done; took != 10*time.Second {
			t.Errorf("waited %v", took)
		}
		// What it reserved and did not use is there for others.
		if took := moved(m.Out, 1<<10, 1<<10); took > 17*time.Second {
			t.Errorf("the next one waited %v", took)
		}
	})
}

func TestQuotaEndsAndRefusesFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, flows.Config{})
		month := flows.MonthOf(time.Now())
		w.SetLimits(map[string]flows.Limits{"org_0": {Quota: 1000, Elsewhere: 300, Month: month}})
		w.add(t, w.flow("a0", 0, "a.test"))
		w.add(t, w.flow("a1", 1, "a.test"))
		w.add(t, w.flow("theirs", 2, "a.test"))
		local := w.flow("local", 0, "")
		local.Local = true
		w.add(t, local)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		m := w.Meter(binding(0))
		m.In(ctx, 400)
		m.Out(ctx, 299)
		synctest.Wait()
		w.want(t, nil)
		m.Out(ctx, 1)
		synctest.Wait()
		w.want(t, map[string]policies.Reason{"a0": policies.ReasonQuota, "a1": policies.ReasonQuota})
		w.refused(t, w.flow("x", 1, "b.test"), flows.ErrQuota, "The organisation's 1000 bytes of this month are used up; tell the person who runs the sandbox, retries will not help.")
		local.ID = "to say why"
		w.add(t, local)
		part := w.flow("part", 0, "a.test")
		part.Within = "to say why"
		w.refused(t, part, flows.ErrQuota, "The organisation's 1000 bytes of this month are used up; tell the person who runs the sandbox, retries will not help.")
		w.add(t, w.flow("theirs too", 2, "a.test"))
		// More of it, for example, opens the door again.
		w.SetLimits(map[string]flows.Limits{"org_0": {Quota: 2000, Elsewhere: 300, Month: month}})
		w.add(t, w.flow("y", 1, "b.test"))
		// What others counted since may close it.
		w.SetLimits(map[string]flows.Limits{"org_0": {Quota: 2000, Elsewhere: 1300, Month: month}})
		w.want(t, map[string]policies.Reason{"y": policies.ReasonQuota})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestQuotaIsOfItsMonth(t *testing.T) {
	now := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)
	w := newWorld(t, flows.Config{Now: func() time.Time { return now }})
	w.SetLimits(map[string]flows.Limits{"org_0": {Quota: 1000, Elsewhere: 900, Month: "2026-12"}})
	m := w.Meter(binding(0))
	m.In(t.Context(), 60)
	m.Out(t.Context(), 40)
	w.refused(t, w.flow("x", 0, "a.test"), flows.ErrQuota, "The organisation's 1000 bytes of this month are used up; tell the person who runs the sandbox, retries will not help.")
	now = now.Add(2 * time.Second)
	w.Usage()
	w.add(t, w.flow("new year", 0, "a.test"))
	m.In(t.Context(), 7)
	want := []flows.Usage{{Org: "org_0", Month: "2026-12", In: 60, Out: 40}, {Org: "org_0", Month: "2027-01", In: 7}}
	if got := w.Usage(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v", got)
	}
	w.Forget([]flows.Usage{{Org: "org_0", Month: "2026-12", In: 60, Out: 39}}) // not all of it
	if got := w.Usage(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v", got)
	}
	w.Forget(want)
	if got := w.Usage(); fmt.Sprint(got) != fmt.Sprint(want[1:]) {
		t.Errorf("%+v", got)
	}
}

func TestCountGoesOnWhereItWas(t *testing.T) {
	w := newWorld(t, flows.Config{})
	month := flows.MonthOf(time.Now())
	before := []flows.Usage{{Org: "org_0", Month: "2001-01", In: 5}, {Org: "org_0", Month: month, In: 100, Out: 50}}
	w.Counted(before)
	w.Counted(before) // once only
	w.Meter(binding(0)).In(t.Context(), 1)
	if got := fmt.Sprint(w.Usage()); got != fmt.Sprint([]flows.Usage{before[0], {Org: "org_0", Month: month, In: 101, Out: 50}}) {
		t.Errorf("%v", got)
	}
	w.SetLimits(map[string]flows.Limits{"org_0": {Quota: 151}})
	if _, err := w.Add(w.flow("x", 0, "a.test")); !errors.Is(err, flows.ErrQuota) {
		t.Errorf("what was counted before doesn't count: %v", err)
	}
}

// BenchmarkMeter watches what counting costs each read and write: without a limit two additions and four loads.
func BenchmarkMeter(b *testing.B) {
	for name, l := range map[string]flows.Limits{"without a limit": {}, "with limits": {SandboxIn: 1 << 50, OrgIn: 1 << 50, Quota: 1 << 60}} {
		b.Run(name, func(b *testing.B) {
			w := newWorld(b, flows.Config{Limits: l})
			m, ctx := w.Meter(binding(0)), context.Background()
			b.ReportAllocs()
			for b.Loop() {
				m.In(ctx, 4096)
			}
		})
	}
}

// TestMonthThatComesBackIsCountedOn: the clock was in the next month for a while, with nobody there who remembers the count.
func TestMonthThatComesBackIsCountedOn(t *testing.T) {
	now := time.Date(2026, 12, 31, 23, 59, 59, 0, time.UTC)
	w := newWorld(t, flows.Config{Now: func() time.Time { return now }})
	w.SetLimits(map[string]flows.Limits{"org_0": {Quota: 100}})
	m := w.Meter(binding(0))
	m.In(t.Context(), 60)
	now = now.AddDate(0, 0, 1)
	w.Usage()
	m.Out(t.Context(), 7)
	now = now.AddDate(0, 0, -1)
	w.Usage()
	w.add(t, w.flow("the rest", 0, "a.test"))
	m.Out(t.Context(), 40)
	want := []flows.Usage{{Org: "org_0", Month: "2026-12", In: 60, Out: 40}, {Org: "org_0", Month: "2027-01", Out: 7}}
	if got := w.Usage(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%+v", got)
	}
	if _, err := w.Add(w.flow("x", 0, "a.test")); !errors.Is(err, flows.ErrQuota) {
		t.Errorf("the quota of the month began anew: %v", err)
	}
}
