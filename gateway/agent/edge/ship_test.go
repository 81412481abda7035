package edge

import (
	"context"
	"sync"
	"testing"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// What was recorded before a flush is with control when it answers, however many messages that takes, and also when control
// had no room at first.
func TestFlushWaitsForWhatWasRecorded(t *testing.T) {
	w := newWorld(t)
	var mu sync.Mutex
	kept, refusals := map[string]bool{}, 1
	mux := link.NewMux()
	link.Handle(mux, role.ControlDecisions, func(_ context.Context, s decisions.Shipment) (decisions.Acked, error) {
		mu.Lock()
		defer mu.Unlock()
		if refusals--; refusals >= 0 {
			return decisions.Acked{}, context.DeadlineExceeded
		}
		var last uint64
		for _, r := range s.Rows {
			d, err := r.Decision()
			if err != nil {
				return decisions.Acked{}, err
			}
			kept[d.ID], last = true, r.Seq
		}
		return decisions.Acked{Seq: last}, nil
	})
	record := func(n int) (ids []string) {
		for range n {
			id := decisions.NewID()
			if err := w.spool.Record(t.Context(), &decisions.Decision{ID: id, Org: org, Sandbox: sbx, Verdict: "deny", Layer: "dns", Host: id}); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		return ids
	}
	first := record(batch + 1)
	control := talk(t, w.supervisor, "control", mux)
	for _, ids := range [][]string{first, record(3), nil} {
		if err := control.Call(t.Context(), role.EdgeFlush, struct{}{}, nil); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		for _, id := range ids {
			if !kept[id] {
				t.Errorf("%s was recorded before the flush and is not with control", id)
			}
		}
		mu.Unlock()
	}
}
