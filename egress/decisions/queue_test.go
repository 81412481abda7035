package decisions

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// pushed leaves all of it to the writer.
func pushed(t *testing.T, q *queue, org string, n int, waits bool) {
	t.Helper()
	for range n {
		e := &entry{org: org}
		if waits {
			e.done = make(chan error, 1)
		}
		lead, err := q.push(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if lead {
			q.written()
		}
	}
}

func TestOrgsTakeTurns(t *testing.T) {
	q := newQueue()
	pushed(t, q, "org_a", 10*maxCommit, true)
	pushed(t, q, "org_b", 2, true)
	pushed(t, q, "org_c", 1, false)
	counts := make(map[string]int)
	for _, e := range q.next(nil) {
		counts[e.org]++
	}
	if counts["org_b"] != 2 || counts["org_c"] != 1 || counts["org_a"] != maxCommit-3 {
		t.Errorf("the commit after a rush of org_a has %v", counts)
	}
	for range 9 {
		q.written()
		q.next(nil)
	}
	q.written()
	if last := q.next(nil); len(last) != 3 { // nothing is lost on the way
		t.Errorf("at the end %d are left, want 3", len(last))
	}
}

// One org's line is full: it waits, others don't.
func TestFullLineStopsItsOrgOnly(t *testing.T) {
	q := newQueue()
	pushed(t, q, "org_a", maxQueue, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := q.push(ctx, &entry{org: "org_a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("one more of org_a: %v", err)
	}
	pushed(t, q, "org_b", 1, true)
	got := q.next(nil)
	pushed(t, q, "org_a", len(got)-1, false) // there is room again
	q.written()
	q.close()
	if _, err := q.push(t.Context(), &entry{org: "org_a"}); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	n := 0
	for batch := q.next(nil); len(batch) > 0; batch = q.next(nil) {
		n += len(batch)
		q.written()
	}
	if n != maxQueue {
		t.Errorf("%d were given out after the end, want %d", n, maxQueue)
	}
}

// What nobody waits for waits a moment for company, but not for ever; who waits, waits for nobody.
func TestOnlyClosingsLinger(t *testing.T) {
	for name, tt := range map[string]struct {
		waits bool
		want  time.Duration
	}{"a closing": {false, linger}, "a decision": {true, 0}} {
		synctest.Test(t, func(t *testing.T) {
			q, begun := newQueue(), time.Now()
			pushed(t, q, "org_a", 1, tt.waits)
			time.AfterFunc(linger/2, func() { _, _ = q.push(context.Background(), &entry{org: "org_a"}) })
			q.next(nil)
			if took := time.Since(begun); took != tt.want {
				t.Errorf("%s waits %v, want %v", name, took, tt.want)
			}
		})
	}
}

func TestBarrierWaitsForWhatCameBefore(t *testing.T) {
	q := newQueue()
	pushed(t, q, "org_a", maxCommit+1, false)
	settled, err := q.settled()
	if err != nil {
		t.Fatal(err)
	}
	pushed(t, q, "org_b", 1, false) // later, but its turn comes first
	for i := range 2 {
		select {
		case <-settled:
			t.Fatalf("settled before commit %d", i+1)
		default:
		}
		if got := q.next(nil); len(got) == 0 {
			t.Fatal(fmt.Sprint("nothing in commit ", i+1))
		}
		q.written()
	}
	<-settled
	if again, err := q.settled(); err != nil {
		t.Error(err)
	} else {
		go q.next(nil)
		<-again
	}
	q.close()
}

// Who waits and finds nothing under way commits by itself, with what is there; who comes meanwhile is left to the writer.
func TestFirstLeads(t *testing.T) {
	q := newQueue()
	push := func(org string, waits bool) bool {
		t.Helper()
		e := &entry{org: org}
		if waits {
			e.done = make(chan error, 1)
		}
		lead, err := q.push(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		return lead
	}
	if push("org_a", false) {
		t.Error("who waits for nothing leads")
	}
	if !push("org_a", true) || push("org_b", true) {
		t.Error("the first who waits leads, and nobody beside it")
	}
	if got := q.batch(nil); len(got) != 3 {
		t.Errorf("it takes %d lines, want all 3", len(got))
	}
	if push("org_c", true) {
		t.Error("a second one leads while the first writes")
	}
	settled, err := q.settled()
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan int)
	go func() { taken <- len(q.next(nil)) }()
	select {
	case <-taken:
		t.Fatal("the writer takes something while another one writes")
	case <-settled:
		t.Fatal("settled, though nothing is written yet")
	case <-time.After(20 * time.Millisecond):
	}
	q.written()
	if n := <-taken; n != 1 {
		t.Errorf("the writer took %d, want what came meanwhile: 1", n)
	}
	q.written()
	<-settled
	if !push("org_d", true) {
		t.Error("nobody leads, though nothing is under way")
	}
}

// Closing rows that a leader took along leave the writer nothing to do when their moment is over.
func TestLeaderTakesClosings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, ended := newQueue(), make(chan int)
		go func() { ended <- len(q.next(nil)) }()
		pushed(t, q, "org_a", 1, false)
		synctest.Wait()
		if lead, err := q.push(t.Context(), &entry{org: "org_a", done: make(chan error, 1)}); !lead || err != nil {
			t.Fatal(lead, err)
		}
		if got := q.batch(nil); len(got) != 2 {
			t.Errorf("the leader took %d, want 2", len(got))
		}
		q.written()
		time.Sleep(2 * linger)
		synctest.Wait()
		select {
		case n := <-ended:
			t.Fatalf("the writer took %d of nothing, and ends", n)
		default:
		}
		q.close()
		if n := <-ended; n != 0 {
			t.Errorf("at the end the writer took %d", n)
		}
	})
}
