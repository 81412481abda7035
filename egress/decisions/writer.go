package decisions

import (
	"errors"
	"time"
)

// linger is how long closing rows may wait for company when nobody waits for a commit.
const linger = 20 * time.Millisecond

// writer commits what is waiting, in batches, until the queue is closed and empty.
func (s *Spool) writer() {
	defer close(s.ended)
	batch := make([]*entry, 0, maxCommit)
	timer := time.NewTimer(linger)
	defer timer.Stop()
	for e := range s.queue {
		batch = s.gather(append(batch[:0], e))
		if !awaited(batch) {
			timer.Reset(linger)
			batch = s.await(batch, timer.C)
		}
		var err error
		if r := rows(batch); len(r) > 0 {
			err = s.file.commit(r)
		}
		s.finish(batch, err)
		clear(batch)
	}
}

// finish tells everybody who waits what became of the commit.
func (s *Spool) finish(batch []*entry, err error) {
	for _, e := range batch {
		if err != nil && e.org != "" {
			s.giveBack(e)
			e.tell(errors.Join(err, s.file.book.Load().lose(e.org, 1, false)))
			continue
		}
		e.tell(nil)
	}
	if err == nil {
		s.nudge()
	}
}

// tell is for whoever waits, if anybody does.
func (e *entry) tell(err error) {
	if e.done != nil {
		e.done <- err
	}
}

// awaited reports whether somebody waits for the commit.
func awaited(batch []*entry) bool {
	for _, e := range batch {
		if e.done != nil {
			return true
		}
	}
	return false
}

// rows leaves out the entries of Flush, which are nothing to write.
func rows(batch []*entry) []*entry {
	out := make([]*entry, 0, len(batch))
	for _, e := range batch {
		if e.org != "" {
			out = append(out, e)
		}
	}
	return out
}

// gather adds what is already waiting. It doesn't wait for more: a lone caller pays for one commit, not for a delay.
func (s *Spool) gather(batch []*entry) []*entry {
	for len(batch) < maxCommit {
		select {
		case e, open := <-s.queue:
			if !open {
				return batch
			}
			batch = append(batch, e)
		default:
			return batch
		}
	}
	return batch
}

// await adds what comes until somebody waits for the commit, or the time is over.
func (s *Spool) await(batch []*entry, over <-chan time.Time) []*entry {
	for len(batch) < maxCommit {
		select {
		case e, open := <-s.queue:
			if !open {
				return batch
			}
			if batch = append(batch, e); e.done != nil {
				return s.gather(batch)
			}
		case <-over:
			return batch
		}
	}
	return batch
}

func (s *Spool) nudge() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}
