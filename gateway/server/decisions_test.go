package server

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/internal/store"
)

func TestShippedDecisionOfAnotherOrgIsDropped(t *testing.T) {
	c, w := newControl(t)
	one, two := w.Org("one"), w.Org("two")
	if _, _, err := w.Policy(one, "web", `{"rules":[]}`, 0); err != nil {
		t.Fatal(err)
	}
	b := w.Sandbox(one, "web")
	seq := uint64(0)
	// row is what an edge ships; the org stands in it twice.
	row := func(id, org, rowOrg, sandbox string) decisions.Row {
		seq++
		body, err := json.Marshal(decisions.Decision{ID: id, Time: time.Now().UTC(), Org: org, Sandbox: sandbox, Layer: "dns", Verdict: "deny", Reason: "no_rule", Host: "a.test"})
		if err != nil {
			t.Fatal(err)
		}
		return decisions.Row{Seq: seq, Org: rowOrg, Body: body}
	}
	mine, theirs := one.Principal.Org, two.Principal.Org
	good := store.NewID("dec")
	shipment := decisions.Shipment{Spool: "s", Rows: []decisions.Row{
		row(store.NewID("dec"), theirs, theirs, b.ID), // another's list would tell what this sandbox does
		row(store.NewID("dec"), theirs, mine, b.ID),
		row(store.NewID("dec"), mine, theirs, b.ID),
		row(store.NewID("dec"), theirs, theirs, store.NewID("sbx")), // a sandbox that nobody has
		row(store.NewID("dec"), mine, mine, store.NewID("sbx")),
		{Seq: seq + 1, Org: mine, Body: json.RawMessage(`"no decision"`)},
		row(good, mine, mine, b.ID),
	}}
	seq++
	shipment.Rows[6].Seq = seq
	acked, err := c.keepDecisions(t.Context(), shipment)
	if err != nil || acked.Seq != seq {
		t.Fatalf("acknowledged %d of %d: %v", acked.Seq, seq, err)
	}
	if all, err := c.store.Decisions(t.Context(), theirs, store.DecisionFilter{Limit: 9}); err != nil || len(all) != 0 {
		t.Errorf("the other org has %+v, %v", all, err)
	}
	all, err := c.store.Decisions(t.Context(), mine, store.DecisionFilter{Limit: 9})
	if err != nil || len(all) != 1 || all[0].ID != good || all[0].Sandbox != b.ID {
		t.Errorf("its own org has %+v, %v", all, err)
	}
}

func TestWhatIsNotStoredIsNotAcknowledged(t *testing.T) {
	c, w := newControl(t)
	one := w.Org("one")
	if _, _, err := w.Policy(one, "web", `{"rules":[]}`, 0); err != nil {
		t.Fatal(err)
	}
	b := w.Sandbox(one, "web")
	body, err := json.Marshal(decisions.Decision{ID: store.NewID("dec"), Time: time.Now().UTC(), Org: b.Org, Sandbox: b.ID, Verdict: "deny"})
	if err != nil {
		t.Fatal(err)
	}
	shipment := decisions.Shipment{Spool: "s", Rows: []decisions.Row{{Seq: 9, Org: b.Org, Body: body}}}
	if acked, err := c.keepDecisions(t.Context(), shipment); err != nil || acked.Seq != 9 {
		t.Fatalf("acknowledged %d, %v", acked.Seq, err)
	}
	held, free := make(chan struct{}), make(chan struct{})
	go c.store.Change(context.Background(), one, func(*store.Tx) error { // nobody else can write for as long
		close(held)
		<-free
		return errors.New("that was all")
	})
	<-held
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.keepDecisions(ctx, shipment); err == nil {
		t.Fatal("acknowledged without being stored")
	}
	close(free)
	if acked, err := c.keepDecisions(t.Context(), shipment); err != nil || acked.Seq != 9 {
		t.Fatalf("sent again, acknowledged %d, %v", acked.Seq, err)
	}
}
