package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"
)

// A rivalry is a client that asks now and then, and those who flood what it goes through.
type rivalry struct {
	name   string
	victim *stand
	floods []*stand
	apart  bool // the flood's clients have the processor when nobody else wants it
}

// rivalries are ours, where the two are sandboxes of different orgs, and one among plain references on the same two processors,
// where nobody is told from anybody: what that one suffers is the machine's doing, as floods cost their clients and the target, too.
// With apart they don't: the flood goes to a server of its own, which like its clients runs when nobody else wants to.
func (w *world) rivalries(apart bool) (ours, plain rivalry, err error) {
	const connects, lookups = 2000, 20000
	host := "pass.test"
	if apart {
		host = "flood.test"
	}
	flood := func(mode string, rate float64) []string {
		return []string{"-mode", mode, "-rate", fmt.Sprint(rate), "-workers", "64"}
	}
	first := w.product.boxes[0]
	ours = rivalry{"portreeve", w.product.stand(1, "open.test", loadArgs("request", 200)), []*stand{
		w.product.stand(0, host, flood("connect", connects)),
		{from: &first.space, args: append(flood("dns", lookups), "-addr", first.gateway+":53", "-name", "pass.test")},
	}, apart}
	asked, err := goproxy(true, "request", 200).ready(w)
	if err != nil {
		return ours, plain, err
	}
	names, err := coredns(lookups).ready(w)
	if err != nil {
		asked.close()
		return ours, plain, err
	}
	through := append(flood("connect", connects), "-proxy", "http://"+doorAddr+":3128", "-addr", host+":443", "-name", host)
	looked := append(flood("dns", lookups), "-addr", doorAddr+":5301", "-name", "pass.test")
	return ours, rivalry{"goproxy and CoreDNS", asked, []*stand{{from: w.other, args: through}, {from: w.other, args: looked, close: names.close}}, apart}, nil
}

// fairness measures the second org alone, then while the first floods.
func (w *world) fairness(ctx context.Context, r row, rounds int, seconds float64) error {
	ours, plain, err := w.rivalries(r.measure == fairApart)
	if err != nil {
		return err
	}
	defer plain.victim.close()
	defer plain.floods[1].close()
	both := []rivalry{ours, plain}
	alone, beside := make([][]figures, 2), make([][]figures, 2)
	for range rounds {
		for i, v := range both {
			a, b, err := v.measure(ctx, w, seconds)
			if err != nil {
				return fmt.Errorf("%s: %w; the last decision: %s", v.name, err, w.product.last(1))
			}
			alone[i], beside[i] = append(alone[i], a), append(beside[i], b)
		}
	}
	title := r.what
	for i, v := range both {
		show(fair, title, v.name+", alone", alone[i], nil, nil)
		title = ""
		show(fair, title, v.name+", beside the flood", beside[i], nil, nil)
		var times []float64
		for n := range alone[i] {
			times = append(times, beside[i][n].p99/alone[i][n].p99)
		}
		fmt.Fprintf(os.Stderr, "  %s: 99 of 100 within %s times of alone\n", v.name, spreadOf(times))
	}
	return nil
}

// measure is one round: the same client alone, then beside the flood.
func (v rivalry) measure(ctx context.Context, w *world, seconds float64) (alone, beside figures, err error) {
	args := append(slices.Clone(v.victim.args), "-seconds", fmt.Sprint(seconds))
	if alone, err = w.latency(ctx, v.victim, args); err != nil {
		return alone, beside, err
	}
	flooding, stop := context.WithCancel(ctx)
	ended := make(chan struct{}, len(v.floods))
	for _, s := range v.floods {
		go func() {
			// Its answers are nobody's business; that it is cut off is how it ends.
			run := []string{w.tool("load")}
			if v.apart {
				run = lowly(run...)
			}
			w.loadBy(flooding, s.from, nil, append(append(run, s.args...), "-seconds", fmt.Sprint(seconds+2))...)
			ended <- struct{}{}
		}()
	}
	time.Sleep(500 * time.Millisecond)
	beside, err = w.latency(ctx, v.victim, args)
	stop()
	for range v.floods {
		<-ended
	}
	return alone, beside, err
}

func (w *world) latency(ctx context.Context, s *stand, args []string) (figures, error) {
	r, err := w.load(ctx, s.from, nil, args...)
	if err == nil && (r.Done == 0 || r.Failed*100 > r.Done) {
		err = fmt.Errorf("%d done, %d failed: %s", r.Done, r.Failed, r.Error)
	}
	return figures{p50: r.P50, p99: r.P99}, err
}
