package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// figures are what one contender came to in one round. What a row does not measure stays zero.
type figures struct {
	cpu      float64            // µs per operation; per GiB in seconds for a stream
	p50, p99 float64            // µs
	speed    float64            // MB/s
	memory   float64            // KiB per connection
	parts    map[string]float64 // of cpu, by program
}

// row measures all contenders of a row and prints them.
func (w *world) row(ctx context.Context, r row, rounds int, seconds float64) error {
	fmt.Printf("\n%s: %s\n", r.name, r.what)
	if r.measure == fair {
		return w.fairness(ctx, rounds, seconds)
	}
	all := make([][]figures, len(r.contenders))
	stands := make([]*stand, len(r.contenders))
	for i, c := range r.contenders {
		s, err := c.ready(w)
		if err != nil {
			fmt.Printf("  %-10s is left out: %v\n", c.name, err)
			continue
		}
		stands[i] = s
		defer s.close()
	}
	for range rounds {
		for i, s := range stands {
			if s == nil {
				continue
			}
			f, err := w.measure(ctx, r.measure, s, seconds)
			if err != nil {
				fmt.Printf("  %-10s failed: %v\n", r.contenders[i].name, err)
				if i == 0 {
					return fmt.Errorf("the last decision: %s", w.product.last())
				}
				s.close()
				stands[i] = nil
				continue
			}
			all[i] = append(all[i], f)
		}
	}
	for i, c := range r.contenders {
		if stands[i] != nil {
			show(r.measure, c.name, all[i], all[1])
		}
	}
	return nil
}

func (w *world) measure(ctx context.Context, m measure, s *stand, seconds float64) (f figures, err error) {
	var before map[int]int64
	var memory int64
	pids := s.pids()
	baseline := resident(pids)
	warm := func() {
		pids = s.pids()
		before = ticks(pids)
		if m == idle {
			time.Sleep(2 * time.Second) // what the last requests left behind goes
			memory = resident(pids)
		}
	}
	args := s.args
	if m == rated {
		args = append(slices.Clone(args), "-seconds", fmt.Sprint(seconds))
	}
	r, err := w.load(ctx, s.from, warm, args...)
	if err != nil {
		return f, err
	}
	used, parts := 0.0, map[string]float64{}
	for pid, n := range ticks(pids) {
		part := float64(n-before[pid]) / 100
		used += part
		parts[program(pid)] += part * 1e6 / float64(max(r.Done, 1))
	}
	switch m {
	case idle:
		f.memory = float64(memory-baseline) / 1024 / float64(r.Done)
	case stream:
		if r.Failed > 0 {
			return f, fmt.Errorf("the stream failed: %s", r.Error)
		}
		f.cpu, f.speed = used/float64(r.Bytes)*(1<<30), float64(r.Bytes)/1e6/r.Seconds
	default:
		if r.Done == 0 || r.Failed*100 > r.Done {
			return f, fmt.Errorf("%d done, %d failed: %s", r.Done, r.Failed, r.Error)
		}
		f.cpu, f.p50, f.p99, f.parts = used*1e6/float64(r.Done), r.P50, r.P99, parts
	}
	return f, nil
}

// spread is a median with the lowest and the highest.
type spread struct{ low, median, high float64 }

func spreadOf(values []float64) spread {
	s := slices.Sorted(slices.Values(values))
	return spread{s[0], s[len(s)/2], s[len(s)-1]}
}

func (s spread) String() string { return fmt.Sprintf("%.4g (%.4g to %.4g)", s.median, s.low, s.high) }

// of picks one figure out of each round.
func of(all []figures, pick func(figures) float64) []float64 {
	out := make([]float64, len(all))
	for i, f := range all {
		out[i] = pick(f)
	}
	return out
}

func show(m measure, name string, own, reference []figures) {
	cpu := func(f figures) float64 { return f.cpu }
	ratio := ""
	if refs := of(reference, cpu); m != idle && len(refs) == len(own) && refs[0] > 0 && own[0].cpu > 0 {
		ratios := make([]float64, len(own))
		for i := range own {
			ratios[i] = own[i].cpu / max(refs[i], 1e-9)
		}
		ratio = fmt.Sprintf(", %.2f x", spreadOf(ratios).median)
		if s := spreadOf(refs); s.high-s.low > 0.2*s.median {
			ratio += " (void: the reference moved by over 20 %)"
		}
	}
	switch m {
	case idle:
		fmt.Printf("  %-10s %s KiB each\n", name, spreadOf(of(own, func(f figures) float64 { return f.memory })))
	case stream:
		fmt.Printf("  %-10s %s MB/s, %s CPU s per GiB%s\n", name, spreadOf(of(own, func(f figures) float64 { return f.speed })), spreadOf(of(own, cpu)), ratio)
	default:
		fmt.Printf("  %-10s %s CPU µs each%s; p50 %s µs, p99 %s µs\n", name, spreadOf(of(own, cpu)), ratio,
			spreadOf(of(own, func(f figures) float64 { return f.p50 })), spreadOf(of(own, func(f figures) float64 { return f.p99 })))
		if last := own[len(own)-1].parts; len(last) > 1 {
			fmt.Print("            of that in the last round:")
			for _, name := range slices.Sorted(maps.Keys(last)) {
				fmt.Printf(" %s %.4g", name, last[name])
			}
			fmt.Println()
		}
	}
}

// fairness measures the second org alone, then while the first floods.
func (w *world) fairness(ctx context.Context, rounds int, seconds float64) error {
	victim := w.product.stand(1, "open.test", append(loadArgs("request", 200), "-seconds", fmt.Sprint(seconds)))
	floods := []*stand{
		w.product.stand(0, "pass.test", []string{"-mode", "connect", "-rate", "2000", "-workers", "64"}),
		{w.product.pids, &w.product.boxes[0].space, []string{"-mode", "dns", "-rate", "20000", "-workers", "64", "-addr", w.product.boxes[0].gateway + ":53", "-name", "pass.test"}, nil},
	}
	var alone, beside []figures
	for range rounds {
		r, err := w.load(ctx, victim.from, nil, victim.args...)
		if err != nil {
			return err
		}
		alone = append(alone, figures{p50: r.P50, p99: r.P99})
		flooding, stop := context.WithCancel(ctx)
		ended := make(chan struct{}, len(floods))
		for _, s := range floods {
			go func() {
				// Its answers are nobody's business; that it is cut off is how it ends.
				w.load(flooding, s.from, nil, append(slices.Clone(s.args), "-seconds", fmt.Sprint(seconds+2))...)
				ended <- struct{}{}
			}()
		}
		time.Sleep(500 * time.Millisecond)
		r, err = w.load(ctx, victim.from, nil, victim.args...)
		stop()
		for range floods {
			<-ended
		}
		if err != nil {
			return err
		}
		beside = append(beside, figures{p50: r.P50, p99: r.P99})
	}
	for _, x := range []struct {
		name string
		all  []figures
	}{{"alone", alone}, {"beside it", beside}} {
		fmt.Printf("  %-10s p50 %s µs, p99 %s µs\n", x.name, spreadOf(of(x.all, func(f figures) float64 { return f.p50 })),
			spreadOf(of(x.all, func(f figures) float64 { return f.p99 })))
	}
	return nil
}
