package decisions

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	maxCommit = 128  // rows in one transaction: who comes while it is written waits for no more
	maxQueue  = 4096 // lines of one org that wait for the writer
	// linger is how long closing rows may wait for company when nobody waits for a commit.
	linger = 20 * time.Millisecond
)

// A queue keeps what waits for the writer, of each org in a line of its own, and gives it out in turns: the rush of one org costs
// another no more than its place in the next commit.
type queue struct {
	shut  chan struct{} // closed by close
	woken chan struct{} // has something in it when the writer should look again

	mu       sync.Mutex
	closed   bool
	lines    map[string]*line
	turns    []*line // those with something in them; the first is next
	n        int     // entries in all lines
	awaited  int     // of those, entries whose caller waits
	pushed   uint64  // entries so far
	barriers []barrier
}

// A line is what waits of one org, in order.
type line struct {
	room  chan struct{} // has one in it for each that is in the line, or about to be
	all   []*entry      // with those that were taken
	taken int
}

// A barrier is for somebody who waits for everything that came before.
type barrier struct {
	after uint64 // so many entries came before
	done  chan struct{}
}

func newQueue() *queue {
	return &queue{shut: make(chan struct{}), woken: make(chan struct{}, 1), lines: make(map[string]*line)}
}

// line returns an org's. It stays: there are as many as orgs, as there are numbers of theirs.
func (q *queue) line(org string) *line {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lines[org]
	if l == nil {
		l = &line{room: make(chan struct{}, maxQueue)}
		q.lines[org] = l
	}
	return l
}

// push adds an entry. While the org's line is full it waits, and nobody else does.
func (q *queue) push(ctx context.Context, e *entry) error {
	l := q.line(e.org)
	select {
	case l.room <- struct{}{}:
	case <-q.shut:
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("waiting for the spool: %w", ctx.Err())
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		<-l.room
		return ErrClosed
	}
	if len(l.all) == 0 {
		q.turns = append(q.turns, l)
	}
	if l.taken > 0 && len(l.all) == cap(l.all) {
		l.all, l.taken = l.all[:copy(l.all, l.all[l.taken:])], 0
	}
	l.all = append(l.all, e)
	q.pushed++
	e.ticket = q.pushed
	q.n++
	if e.done != nil {
		q.awaited++
	}
	if e.done != nil || q.n == 1 || q.n == maxCommit {
		q.wake()
	}
	return nil
}

// settled returns a channel that is closed when everything that was pushed before is written, or lost and counted.
func (q *queue) settled() (<-chan struct{}, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrClosed
	}
	b := barrier{q.pushed, make(chan struct{})}
	q.barriers = append(q.barriers, b)
	q.wake()
	return b.done, nil
}

// close lets nothing more in. What is there is still given out.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.shut)
		q.wake()
	}
}

func (q *queue) wake() {
	select {
	case q.woken <- struct{}{}:
	default:
	}
}

// next waits for something to commit and appends it to batch; none is the end. It doesn't wait for more, as a lone caller pays
// for one commit and not for a delay; only lines for which nobody waits get a moment for others of their kind.
func (q *queue) next(batch []*entry) []*entry {
	var over <-chan time.Time
	lingered := false
	for {
		q.mu.Lock()
		if q.n == 0 {
			q.release()
		}
		due := q.awaited > 0 || q.n >= maxCommit || q.closed || len(q.barriers) > 0
		if due || lingered {
			batch = q.take(batch)
		}
		n := q.n
		q.mu.Unlock()
		if due || lingered {
			return batch
		}
		if n > 0 && over == nil {
			timer := time.NewTimer(linger)
			defer timer.Stop()
			over = timer.C
		}
		select {
		case <-q.woken:
		case <-over:
			lingered = true
		}
	}
}

// take gives out one entry of each org, and again, until the batch is full. The caller holds the lock.
func (q *queue) take(batch []*entry) []*entry {
	for len(batch) < maxCommit && len(q.turns) > 0 {
		l := q.turns[0]
		e := l.all[l.taken]
		l.all[l.taken] = nil
		l.taken++
		<-l.room
		q.turns = q.turns[1:]
		if l.taken < len(l.all) {
			q.turns = append(q.turns, l)
		} else {
			l.all, l.taken = l.all[:0], 0
		}
		q.n--
		if e.done != nil {
			q.awaited--
		}
		batch = append(batch, e)
	}
	return batch
}

// written tells those behind barriers that what was taken before is dealt with.
func (q *queue) written() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.release()
}

// release lets go who waits for nothing that is still here. The caller holds the lock, and nothing is taken and not yet written.
func (q *queue) release() {
	if len(q.barriers) == 0 {
		return
	}
	oldest := q.pushed + 1
	for _, l := range q.turns {
		oldest = min(oldest, l.all[l.taken].ticket)
	}
	kept := q.barriers[:0]
	for _, b := range q.barriers {
		if b.after < oldest {
			close(b.done)
		} else {
			kept = append(kept, b)
		}
	}
	q.barriers = kept
}
