package main

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"
)

const (
	changes = 50                     // in a round
	pace    = 100 * time.Millisecond // from one to the next
)

// changes measures the time of a policy's change: alone, beside requests and queries, and with live connections, each of which is
// judged again before an edge acknowledges.
func (w *world) changes(ctx context.Context, r row, rounds int) error {
	var alone, beside, live []figures
	for range rounds {
		f, err := w.product.change(ctx)
		if err != nil {
			return err
		}
		alone = append(alone, f)
		if f, err = w.changeBeside(ctx); err != nil {
			return err
		}
		beside = append(beside, f)
	}
	release, err := w.hold(ctx, w.product.stand(0, "pass.test", loadArgs("idle", 0)), w.connections)
	if err != nil {
		return err
	}
	defer release()
	for range rounds {
		f, err := w.product.change(ctx)
		if err != nil {
			return err
		}
		live = append(live, f)
	}
	n, err := w.product.live()
	if err != nil {
		return err
	}
	if n < w.connections {
		return fmt.Errorf("%d connections are live, want %d", n, w.connections)
	}
	show(changed, r.what, "portreeve", alone, nil, nil)
	show(fair, "", "portreeve, beside 500 requests on opened connections and 500 queries a second", beside, nil, nil)
	show(changed, "", fmt.Sprintf("portreeve, with %d live connections, all of them judged again", w.connections), live, nil, nil)
	return nil
}

// change changes the policy of the first org again and again, and waits each time until the edges have acknowledged.
func (p *product) change(ctx context.Context) (figures, error) {
	pids := p.pids()
	before := ticks(pids)
	var times []float64
	due := time.Now()
	for range changes {
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return figures{}, ctx.Err()
		}
		if err := p.allow(p.keys[0], p.next()); err != nil {
			return figures{}, err
		}
		times = append(times, float64(time.Since(due).Nanoseconds())/1000)
		due = due.Add(pace)
	}
	slices.Sort(times)
	f := figures{p50: times[len(times)/2], p99: times[len(times)*99/100]}
	f.cpu, f.parts = usedSince(before, pids, changes)
	return f, nil
}

// next is a number that no other change of a policy had.
func (p *product) next() int {
	p.edits++
	return p.edits
}

// changeBeside is change while a load goes on, all of which has to be answered.
func (w *world) changeBeside(ctx context.Context) (f figures, err error) {
	length := fmt.Sprint((changes * pace).Seconds() + 1)
	loads := []*stand{w.product.stand(0, "open.test", loadArgs("request", 500)), w.product.asking("pass.test", 500)}
	ready, ended := make(chan struct{}, len(loads)), make(chan error, len(loads))
	for _, s := range loads {
		go func() {
			r, err := w.load(ctx, s.from, func() { ready <- struct{}{} }, append(s.args, "-seconds", length, "-share", fmt.Sprint(w.share))...)
			if err == nil && (r.Done == 0 || r.Failed*100 > r.Done) {
				err = fmt.Errorf("beside the changes %d requests were done, %d failed: %s", r.Done, r.Failed, r.Error)
			}
			ended <- err
		}()
	}
	early := 0
	for range loads {
		select {
		case <-ready:
		case err = <-ended:
			early++
		}
	}
	if err == nil && early == 0 {
		f, err = w.product.change(ctx)
	}
	for range len(loads) - early {
		if e := <-ended; err == nil {
			err = e
		}
	}
	return f, err
}

// hold opens connections and keeps them until release is called.
func (w *world) hold(ctx context.Context, s *stand, n int) (release func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := w.load(ctx, s.from, func() { close(ready) }, append(s.args, "-workers", fmt.Sprint(n), "-seconds", "600")...)
		ended <- err
	}()
	release = func() { cancel(); <-ended }
	select {
	case <-ready:
		return release, nil
	case err := <-ended:
		cancel()
		return nil, fmt.Errorf("opening %d connections: %w", n, err)
	}
}

// live counts the live connections of the first org.
func (p *product) live() (n int, err error) {
	for cursor := ""; ; {
		var page struct {
			Flows      []struct{}
			NextCursor *string `json:"next_cursor"`
		}
		if err := p.call(p.keys[0], "GET", "/flows?limit=500&cursor="+cursor, nil, &page); err != nil {
			return n, err
		}
		n += len(page.Flows)
		if page.NextCursor == nil {
			return n, nil
		}
		cursor = *page.NextCursor
	}
}

// manyConnections is how many live connections one org can have here, up to the number to reach: an edge gives an org that is alone half of its
// open files, and each connection has two. It raises the limit of all that the bench starts, where that is allowed.
func manyConnections() int {
	const wanted, each = 10000, 5
	limit := syscall.Rlimit{Cur: wanted * each, Max: wanted * each}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) == nil || syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return wanted
	}
	return min(wanted, int(limit.Max/each))
}
