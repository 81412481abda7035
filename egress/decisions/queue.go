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

// A queue keeps what waits for a commit, of each org in a line of its own, and gives it out in turns: the rush of one org costs
// another no more than its place in the next commit. Who comes while nothing is written leads: it commits by itself, as handing
// one line to the writer and its outcome back costs more than writing it. What comes meanwhile is the writer's.
type queue struct {
	shut  chan struct{} // closed by close
	woken chan struct{} // has something in it when the writer should look again

	mu       sync.Mutex
	closed   bool
	busy     bool // a batch was given out, or is about to be to who leads, and is not yet written
	lingers  bool // the writer looks again when the moment is over in which closing rows wait for company
	rested   bool // that moment is over for what is here
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

// push adds an entry. While the org's line is full it waits, and nobody else does. Who is told to lead calls batch, and written
// once that is dealt with.
func (q *queue) push(ctx context.Context, e *entry) (lead bool, err error) {
	l := q.line(e.org)
	select {
	case l.room <- struct{}{}:
	case <-q.shut:
		return false, ErrClosed
	case <-ctx.Done():
		return false, fmt.Errorf("waiting for the spool: %w", ctx.Err())
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		<-l.room
		return false, ErrClosed
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
		lead, q.busy = !q.busy, true
	} else if !q.busy && (!q.lingers || q.n >= maxCommit) {
		q.wake()
	}
	return lead, nil
}

// batch gives out what who leads commits: in turns, so that it may not be what it pushed.
func (q *queue) batch(room []*entry) []*entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.take(room)
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
	for {
		q.mu.Lock()
		if q.due() {
			q.lingers, q.busy = false, true
			batch = q.take(batch)
			q.mu.Unlock()
			return batch
		}
		if over == nil && q.n > 0 && !q.busy {
			timer := time.NewTimer(linger)
			defer timer.Stop()
			over, q.lingers = timer.C, true
		}
		q.mu.Unlock()
		select {
		case <-q.woken:
		case <-over:
			over = nil
			q.mu.Lock()
			q.lingers, q.rested = false, q.n > 0
			q.mu.Unlock()
		}
	}
}

// due says whether the writer has to take what is here, or to end. The caller holds the lock.
func (q *queue) due() bool {
	if q.busy {
		return false
	}
	if q.n == 0 {
		q.release()
		return q.closed
	}
	return q.awaited > 0 || q.rested || q.n >= maxCommit || q.closed || len(q.barriers) > 0
}

// take gives out one entry of each org, and again, until the batch is full. The caller holds the lock.
func (q *queue) take(batch []*entry) []*entry {
	q.rested = false
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

// written ends the turn of who took a batch: those behind barriers are told that it is dealt with, and what came meanwhile is
// the writer's.
func (q *queue) written() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = false
	q.release()
	if q.closed || q.n > 0 && !q.lingers || q.due() {
		q.wake()
	}
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
