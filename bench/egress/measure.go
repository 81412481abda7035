package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"
)

// figures are what one contender came to in one round. What a row does not measure stays zero.
type figures struct {
	cpu      float64            // µs per operation; per GiB in seconds for a stream
	p50, p99 float64            // µs
	speed    float64            // MB/s
	memory   float64            // KiB per connection
	lines    float64            // of the record, per operation
	parts    map[string]float64 // of cpu, by program
}

// row measures all contenders of a row and prints them.
func (w *world) row(ctx context.Context, r row, rounds int, seconds float64) error {
	fmt.Fprintf(os.Stderr, "%s: %s\n", r.name, r.what)
	switch r.measure {
	case fair, fairApart:
		return w.fairness(ctx, r, rounds, seconds)
	case changed:
		return w.changes(ctx, r, rounds)
	}
	all := make([][]figures, len(r.contenders))
	stands := make([]*stand, len(r.contenders))
	for i, c := range r.contenders {
		s, err := c.ready(w)
		if err != nil {
			fmt.Fprintf(os.Stderr, "  %s is left out: %v\n", c.name, err)
			continue
		}
		stands[i] = s
		defer s.close()
	}
	if r.measure == idle {
		rounds = min(rounds, 2) // memory doesn't move with what else the machine does
	}
	for range rounds {
		for i, s := range stands {
			if s == nil {
				continue
			}
			f, err := w.measure(ctx, r.measure, s, seconds)
			if err != nil {
				fmt.Fprintf(os.Stderr, "  %s failed: %v\n", r.contenders[i].name, err)
				if i == 0 {
					return fmt.Errorf("the last decision: %s", w.product.last(0))
				}
				s.close()
				stands[i] = nil
				continue
			}
			all[i] = append(all[i], f)
		}
	}
	title := r.what
	between := slices.IndexFunc(r.contenders, func(c contender) bool { return c.name == nothing })
	for i, c := range r.contenders {
		if stands[i] != nil {
			var direct []figures
			if between >= 0 && between != i {
				direct = all[between]
			}
			show(r.measure, title, c.name, all[i], all[1], direct)
			title = ""
		}
	}
	return nil
}

func (w *world) measure(ctx context.Context, m measure, s *stand, seconds float64) (f figures, err error) {
	var before map[int]int64
	var memory int64
	if s.each != nil {
		if err := s.each(); err != nil {
			return f, err
		}
	}
	var lines uint64
	if m == recorded {
		if lines, err = w.product.stored(ctx); err != nil {
			return f, err
		}
	}
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
	args := slices.Clone(s.args)
	if m == rated || m == recorded {
		args = append(args, "-seconds", fmt.Sprint(seconds), "-share", fmt.Sprint(w.share))
	}
	r, err := w.load(ctx, s.from, warm, args...)
	if err != nil {
		return f, err
	}
	if m == recorded {
		until, err := w.product.stored(ctx)
		if err != nil {
			return f, err
		}
		f.lines = float64(until-lines) / float64(max(r.Done, 1))
	}
	used, parts := usedSince(before, pids, r.Done)
	switch m {
	case idle:
		f.memory = float64(memory-baseline) / 1024 / float64(r.Done)
	case stream:
		if r.Failed > 0 {
			return f, fmt.Errorf("the stream failed: %s", r.Error)
		}
		f.cpu, f.speed = used/1e6/float64(r.Bytes)*(1<<30), float64(r.Bytes)/1e6/r.Seconds
	default:
		if r.Done == 0 || r.Failed*100 > r.Done {
			return f, fmt.Errorf("%d done, %d failed: %s", r.Done, r.Failed, r.Error)
		}
		f.cpu, f.p50, f.p99, f.parts = used, r.P50, r.P99, parts
	}
	return f, nil
}

// usedSince is the processor time since before, in µs per operation, in all and by program.
func usedSince(before map[int]int64, pids []int, operations int) (all float64, parts map[string]float64) {
	parts = map[string]float64{}
	for pid, n := range ticks(pids) {
		part := float64(n-before[pid]) * 1e4 / float64(max(operations, 1))
		all += part
		parts[program(pid)] += part
	}
	return all, parts
}

// spread is a median with the lowest and the highest.
type spread struct{ low, median, high float64 }

func spreadOf(values []float64) spread {
	s := slices.Sorted(slices.Values(values))
	return spread{s[0], s[len(s)/2], s[len(s)-1]}
}

func (s spread) String() string {
	return fmt.Sprintf("%s (%s to %s)", short(s.median), short(s.low), short(s.high))
}

// short writes a figure with two places that count, or whole.
func short(v float64) string {
	if math.Abs(v) >= 99.5 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}

// of picks one figure out of each round.
func of(all []figures, pick func(figures) float64) []float64 {
	out := make([]float64, len(all))
	for i, f := range all {
		out[i] = pick(f)
	}
	return out
}

// tableHead stands above all that show prints.
const tableHead = `| what | by | processor time | to the reference | median | added | 99 of 100 | added | more |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
`

// show prints one line of the table; what is empty below a contender of the same row. Added is what is more than direct in the same round.
func show(m measure, what, name string, own, reference, direct []figures) {
	cpu := of(own, func(f figures) float64 { return f.cpu })
	var cost, ratio, p50, p99, added50, added99, more string
	switch m {
	case idle:
		more = spreadOf(of(own, func(f figures) float64 { return f.memory })).String() + " KiB each"
	case stream:
		cost, more = spreadOf(cpu).String()+" s per GiB", spreadOf(of(own, func(f figures) float64 { return f.speed })).String()+" MB/s"
		ratio = ratioTo(cpu, reference)
	case fair:
	case recorded:
		cost, ratio, more = spreadOf(cpu).String()+" µs", ratioTo(cpu, reference), recordOf(name, own, reference)
	default:
		cost, ratio, more = spreadOf(cpu).String()+" µs", ratioTo(cpu, reference), partsOf(own)
	}
	if m != idle && m != stream {
		p50, added50 = latency(own, direct, func(f figures) float64 { return f.p50 })
		p99, added99 = latency(own, direct, func(f figures) float64 { return f.p99 })
	}
	if spreadOf(cpu).high == 0 {
		cost = ""
	}
	fmt.Printf("| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", what, name, cost, ratio, p50, added50, p99, added99, more)
}

// latency is a figure, and what of it is more than direct; empty where there is no direct.
func latency(own, direct []figures, pick func(figures) float64) (whole, added string) {
	whole = milliseconds(of(own, pick))
	if len(direct) == len(own) {
		added = milliseconds(less(of(own, pick), of(direct, pick)))
	}
	return whole, added
}

// less is a without b, round by round.
func less(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] - b[i]
	}
	return out
}

// ratioTo is the median of the ratios within each round, and says when they are worth nothing.
func ratioTo(cpu []float64, reference []figures) string {
	refs := of(reference, func(f figures) float64 { return f.cpu })
	if len(refs) != len(cpu) || spreadOf(refs).low <= 0 || spreadOf(cpu).high == 0 {
		return ""
	}
	ratios := make([]float64, len(cpu))
	for i := range cpu {
		ratios[i] = cpu[i] / refs[i]
	}
	text := fmt.Sprintf("%.2f", spreadOf(ratios).median)
	if s := spreadOf(refs); s.high-s.low > 0.2*s.median {
		text += ", void: the reference moved"
	}
	return text
}

// partsOf says which program took how much, as the median; what took next to nothing is left out.
func partsOf(own []figures) string {
	names := map[string]bool{}
	for _, f := range own {
		for name := range f.parts {
			names[name] = true
		}
	}
	if len(names) < 2 {
		return ""
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if v := spreadOf(of(own, func(f figures) float64 { return f.parts[name] })).median; v >= 1 {
			parts = append(parts, fmt.Sprintf("%s %s", name, short(v)))
		}
	}
	return strings.Join(parts, ", ")
}

func milliseconds(micros []float64) string {
	s := spreadOf(micros)
	return spread{s.low / 1000, s.median / 1000, s.high / 1000}.String() + " ms"
}
