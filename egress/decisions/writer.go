package decisions

import "errors"

// writer commits what is waiting, in batches, until the queue is closed and empty.
func (s *Spool) writer() {
	defer close(s.ended)
	batch := make([]*entry, 0, maxCommit)
	for e := range s.queue {
		batch = s.gather(append(batch[:0], e))
		err := s.file.commit(batch)
		for _, e := range batch {
			if err != nil {
				s.giveBack(e)
				e.done <- errors.Join(err, s.file.book.Load().lose(e.org, 1, false))
				continue
			}
			e.done <- nil
		}
		if err == nil {
			s.nudge()
		}
		clear(batch)
	}
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

func (s *Spool) nudge() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}
