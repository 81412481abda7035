package resolver_test

import (
	"context"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/egress/resolver"
)

// However often a name is asked for, and whether it is denied or allowed: the counts of its rows add up to that.
func TestRepetitionsAreCounted(t *testing.T) {
	for name, verdict := range map[string]string{"evil.test.": "deny", "good.test.": "allow"} {
		t.Run(verdict, func(t *testing.T) {
			w := newWorld(t, resolver.Config{Coalesce: time.Hour}, resolver.NamesConfig{})
			w.serve(t)
			for range 5 {
				w.ask(t, boxA.Addr, question(name, dns.TypeA))
				w.clock.Add(1)
			}
			w.ask(t, boxB.Addr, question(name, dns.TypeA))
			w.server.Drop(boxA.Sandbox) // has what was counted written
			w.server.Drop(boxB.Sandbox) // which asked once
			all := w.recorder.take()
			if len(all) != 3 {
				t.Fatalf("%d rows: %+v", len(all), all)
			}
			first, counted := all[0], all[2]
			if first.Count != 0 || first.Closed || counted.Count != 4 || !counted.Closed || counted.ID == first.ID {
				t.Errorf("the first is %+v, the others are %+v", first, counted)
			}
			if d := counted; d.Verdict != verdict || d.Host != first.Host || d.Reason != first.Reason || d.Sandbox != boxA.Sandbox || d.Until.Sub(d.Time) < 3*time.Second {
				t.Errorf("they are counted as %+v", d)
			}
		})
	}
}

// counting sends how many decisions each row stands for.
type counting chan uint64

func (c counting) Record(_ context.Context, d *decisions.Decision) error {
	c <- max(d.Count, 1)
	return nil
}

// What was counted is written without anybody asking.
func TestRepetitionsAreWrittenByThemselves(t *testing.T) {
	const asked = 50
	rows := make(counting, asked)
	w := newWorld(t, resolver.Config{Coalesce: 10 * time.Millisecond, Recorder: rows}, resolver.NamesConfig{})
	w.serve(t)
	for range asked {
		w.ask(t, boxA.Addr, question("evil.test.", dns.TypeA))
	}
	enough := time.After(10 * time.Second)
	for sum := uint64(0); sum != asked; {
		select {
		case n := <-rows:
			sum += n
		case <-enough:
			t.Fatalf("%d of %d are on record", sum, asked)
		}
	}
}

// What the edge has counted when it ends is on record.
func TestRepetitionsOutliveTheServer(t *testing.T) {
	w := newWorld(t, resolver.Config{Coalesce: time.Hour}, resolver.NamesConfig{})
	t.Run("serving", func(t *testing.T) {
		w.serve(t)
		for range 3 {
			w.ask(t, boxA.Addr, question("evil.test.", dns.TypeA))
		}
	})
	if all := w.recorder.take(); len(all) != 2 || all[1].Count != 2 {
		t.Errorf("rows %+v", all)
	}
}
