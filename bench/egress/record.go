package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The product has no way to run without a record, so what one costs is the difference between two loads that are alike but for it.
// A rule that says "log": "count" has its decisions counted in one row a minute: each is still judged, committed and waited for, but
// has no line that is kept, shipped and stored. A query whose name was just looked up is counted in memory alone, so for queries
// the difference is the whole record.
const (
	written = "portreeve, each written"
	counted = "portreeve, only counted"
)

// manyNames are more than one round looks up, so that within a round no query repeats another.
const manyNames = 4000

// as gives a contender another name.
func (c contender) as(name string) contender {
	c.name = name
	return c
}

// oursManyNames asks for another name each time. All have been looked up before: a name's first time also costs an address.
// That they count as repeated for some seconds ends with a change of the policy.
func oursManyNames(rate float64) contender {
	return contender{"portreeve", func(w *world) (*stand, error) {
		p := w.product
		s := p.asking("each.test", rate)
		s.args = append(s.args, "-names", fmt.Sprint(manyNames))
		s.each = func() error { return p.allow(p.keys[0], p.next()) }
		first := append(p.asking("each.test", manyNames).args, "-names", fmt.Sprint(manyNames), "-seconds", "1")
		r, err := w.load(context.Background(), s.from, nil, first...)
		if err == nil && r.Failed > 0 {
			err = fmt.Errorf("looking up every name once, %d failed: %s", r.Failed, r.Error)
		}
		return s, err
	}}
}

// stored returns how many lines of the first org are in the store, once none is on its way.
func (p *product) stored(ctx context.Context) (lines uint64, err error) {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		var health struct {
			Nodes []struct{ Shipped, Waiting uint64 }
		}
		if err := p.call(p.keys[0], "GET", "/decisions/health", nil, &health); err != nil {
			return 0, err
		}
		var waiting uint64
		lines = 0
		for _, n := range health.Nodes {
			lines, waiting = lines+n.Shipped, waiting+n.Waiting
		}
		if waiting == 0 {
			return lines, nil
		}
	}
	return 0, errors.New("the record does not arrive")
}

// recordOf says how many lines a decision took and, of those that are written, what it cost more than one that is not.
func recordOf(name string, own, reference []figures) string {
	lines := short(spreadOf(of(own, func(f figures) float64 { return f.lines })).median) + " lines each"
	if name != written || len(own) != len(reference) {
		return lines
	}
	more := func(pick func(figures) float64) []float64 { return less(of(own, pick), of(reference, pick)) }
	part := func(name string) string {
		return short(spreadOf(more(func(f figures) float64 { return f.parts[name] })).median)
	}
	return fmt.Sprintf("%s; a decision adds %s µs: edge %s, control %s", lines, spreadOf(more(func(f figures) float64 { return f.cpu })),
		part("portreeve-edge"), part("portreeve control"))
}
