package supervisor

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"testing"

	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/link"
)

// pinger is a process in this one that answers "ping" of its sibling.
func pinger(t *testing.T, b *broker, name, peer string) *child.Sibling {
	t.Helper()
	mux := link.NewMux()
	link.Handle(mux, "ping", func(context.Context, struct{}) (string, error) { return name, nil })
	sibling := &child.Sibling{Mux: mux}
	ours, theirs := processtest.Pair(t)
	p := &process{job: job{name: name}, broker: b}
	conn := link.NewConn(ours, p.mux(), link.Limits{})
	go conn.Run(t.Context())
	go child.RunOn(t.Context(), theirs, child.Spec{
		Start:    func(context.Context, json.RawMessage, []*os.File) (any, []*os.File, error) { return nil, nil, nil },
		Siblings: map[string]*child.Sibling{peer: sibling},
	})
	b.up(name, conn)
	return sibling
}

// A link can break while both of its ends live, as on a frame over the limit: nobody may stay cut off for that.
func TestLivingProcessesAreLinkedAgain(t *testing.T) {
	b := newBroker(slog.New(slog.DiscardHandler), func() {})
	control := pinger(t, b, Control, Edge)
	edge := pinger(t, b, Edge, Control)
	ctx, cancel := context.WithTimeout(t.Context(), processtest.Patience/3)
	defer cancel()
	for round := range 3 {
		for _, c := range []struct {
			side *child.Sibling
			want string
		}{{control, Edge}, {edge, Control}} {
			var got string
			if err := c.side.Call(ctx, "ping", struct{}{}, &got); err != nil || got != c.want {
				t.Fatalf("round %d: got %q, %v, want %q", round, got, err, c.want)
			}
		}
		broken, other := control.Now(), edge.Now()
		broken.Close()
		processtest.Await(t, "the news of the broken link", func() bool { return control.Now() != broken && edge.Now() != other })
	}
}
