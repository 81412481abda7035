package server

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/internal/store"
)

// shipped makes a shipment of one sandbox's allowed connections, with numbers from first on.
func shipped(t *testing.T, b store.Sandbox, spool, run string, life, first uint64, n int) decisions.Shipment {
	t.Helper()
	s := decisions.Shipment{Node: "n1", Spool: spool, Run: run, Life: life, Began: first, Orgs: map[string]decisions.OrgState{}}
	for i := range n {
		body, err := json.Marshal(decisions.Decision{ID: store.NewID("dec"), Time: time.Now().UTC(), Org: b.Org, Sandbox: b.ID, Layer: "connect", Level: "sni", Verdict: "allow", Host: "a.test"})
		if err != nil {
			t.Fatal(err)
		}
		num := first + uint64(i)
		s.Rows = append(s.Rows, decisions.Row{Seq: num, Org: b.Org, Num: num, Body: body})
	}
	last := first + uint64(n) - 1
	s.Orgs[b.Org] = decisions.OrgState{Upto: last, Reserved: last + 100, Written: last}
	return s
}

func TestOlderCopyOfASpoolLeavesNumbersOut(t *testing.T) {
	c, w := newControl(t)
	one := w.Org("one")
	b := w.Sandbox(one, "")
	keep := func(s decisions.Shipment) decisions.Acked {
		t.Helper()
		acked, err := c.keepDecisions(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		return acked
	}
	keep(shipped(t, b, "s1", "first", 1, 1, 10))
	if a := keep(shipped(t, b, "s1", "first", 1, 11, 1)); a.Skip != nil {
		t.Errorf("the same life goes on: %+v", a)
	}
	if a := keep(shipped(t, b, "s1", "second", 2, 12, 1)); a.Skip != nil {
		t.Errorf("the next life: %+v", a)
	}
	if a := keep(shipped(t, b, "s2", "x", 1, 1, 1)); a.Skip != nil {
		t.Errorf("another spool: %+v", a)
	}
	if a := keep(shipped(t, b, "s1", "first", 1, 5, 1)); a.Skip[b.Org] != 113 {
		t.Errorf("a copy of an earlier life: %+v, want it to go on at 113, behind what was reserved", a)
	}
	if a := keep(shipped(t, b, "s1", "other", 1, 6, 1)); a.Skip[b.Org] != 106 {
		t.Errorf("a copy that was opened as often: %+v, want it to go on at 106", a)
	}
}

// A flow that began and ended in one shipment comes as one text: both numbers arrived, and it is kept once, with its end.
func TestJoinedRowsCountAsBoth(t *testing.T) {
	c, w := newControl(t)
	b := w.Sandbox(w.Org("one"), "")
	other := w.Org("two").Principal.Org
	s := shipped(t, b, "s1", "first", 1, 1, 4)
	for i := range 2 { // rows 1 and 2 are closed by 3 and 4
		d, err := s.Rows[i].Decision()
		if err != nil {
			t.Fatal(err)
		}
		d.Closed, d.Status = true, 200
		s.Rows[i+2].Body = d.AppendJSON(nil)
		s.Rows[i].Body, s.Rows[i].With = nil, uint64(i+3)
	}
	stray := []decisions.Row{{Seq: 5, Org: b.Org, Num: 5, With: 99}, {Seq: 6, Org: other, Num: 1, With: 3}} // they join nothing that is theirs
	s.Rows = append(s.Rows, stray...)
	s.Orgs[b.Org] = decisions.OrgState{Upto: 5, Reserved: 100, Written: 5}
	s.Orgs[other] = decisions.OrgState{Upto: 1, Reserved: 100, Written: 1}
	if acked, err := c.keepDecisions(t.Context(), s); err != nil || acked.Seq != 6 {
		t.Fatalf("%+v, %v", acked, err)
	}
	all, err := c.store.Decisions(t.Context(), b.Org, store.DecisionFilter{Limit: 99})
	if err != nil || len(all) != 2 || !all[0].Closed || all[1].Status != 200 {
		t.Errorf("kept %+v, %v", all, err)
	}
	for org, want := range map[string][2]uint64{b.Org: {5, 4}, other: {1, 0}} {
		books, err := c.store.Numbers(t.Context(), org)
		if err != nil || len(books) != 1 || books[0].Highest != want[0] || books[0].Received != want[1] {
			t.Errorf("the books: %+v, %v, want %d of %d received", books, err, want[1], want[0])
		}
	}
}

func TestFlowsOfADeadEdgeAreClosed(t *testing.T) {
	c, w := newControl(t)
	b := w.Sandbox(w.Org("one"), "")
	if _, err := c.keepDecisions(t.Context(), shipped(t, b, "s1", "first", 1, 1, 3)); err != nil {
		t.Fatal(err)
	}
	open := func() (n int) {
		all, err := c.store.Decisions(t.Context(), b.Org, store.DecisionFilter{Limit: 99})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range all {
			if !d.Closed {
				n++
			}
		}
		return n
	}
	c.running.Wait()
	if n := open(); n != 3 {
		t.Fatalf("%d of 3 flows are open while their edge lives", n)
	}
	// The next life begins with what the first still had to say: only then may its flows be closed.
	late := shipped(t, b, "s1", "second", 2, 4, 1)
	late.Began, late.More = 6, true
	if _, err := c.keepDecisions(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	c.running.Wait()
	if n := open(); n != 4 {
		t.Fatalf("%d of 4 flows are open while the dead edge has more to say", n)
	}
	if _, err := c.keepDecisions(t.Context(), shipped(t, b, "s1", "second", 2, 6, 1)); err != nil {
		t.Fatal(err)
	}
	processtest.Await(t, "the end of the dead edge's flows", func() bool { return open() == 1 })
}

func TestHashKeysAreOfOneOrg(t *testing.T) {
	c, _ := newControl(t)
	if err := c.openHashKey(t.Context()); err != nil {
		t.Fatal(err)
	}
	one := c.hashKey("org_1")
	if bytes.Equal(one, c.hashKey("org_2")) || len(one) != 32 {
		t.Error("two orgs have one key")
	}
	again := &control{store: c.store, keyring: c.keyring}
	if err := again.openHashKey(t.Context()); err != nil || !bytes.Equal(again.hashKey("org_1"), one) {
		t.Errorf("after a restart the key is another: %v", err)
	}
	if k := (&control{}).hashKey("org_1"); k != nil {
		t.Error("a key that anybody could make")
	}
}

func TestDecisionsKeepToTheirBudgets(t *testing.T) {
	c, w := newControl(t)
	one, two := w.Org("one"), w.Org("two")
	fill := func(b store.Sandbox, n int) {
		t.Helper()
		var batch []decisions.Decision
		for i := range n {
			batch = append(batch, decisions.Decision{ID: store.NewID("dec"), Time: time.Now().Add(time.Duration(i-n) * time.Second), Org: b.Org, Sandbox: b.ID, Layer: "dns", Verdict: "deny", Host: "a.test"})
		}
		if err := c.store.AppendDecisions(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
	}
	held := func(org string) store.Holdings {
		t.Helper()
		h, err := c.store.Holdings(t.Context(), org)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	fill(w.Sandbox(one, ""), 1200)
	fill(w.Sandbox(two, ""), 100)
	round := func(orgMost, allMost int64) {
		t.Helper()
		if _, err := c.trimRound(t.Context(), orgMost, allMost); err != nil {
			t.Fatal(err)
		}
	}
	a, b := one.Principal.Org, two.Principal.Org
	all := held(a).Bytes
	round(all, 2*all)
	if held(a).Count != 1200 || held(b).Count != 100 {
		t.Errorf("within every budget: %d and %d are left", held(a).Count, held(b).Count)
	}
	round(all/2, 2*all)
	if h := held(a); h.Bytes > all/2 || h.Bytes < all/3 || h.ForgottenBefore.IsZero() || held(b).Count != 100 {
		t.Errorf("beyond its own: %d of %d bytes are left, and %d of the other org", h.Bytes, all, held(b).Count)
	}
	small := held(b).Bytes
	round(all, 2*small)
	if h := held(a); h.Bytes+small > 2*small || held(b).Count != 100 {
		t.Errorf("beyond that of all: %d bytes are left beside %d of the small org, which has %d decisions", h.Bytes, small, held(b).Count)
	}
}
