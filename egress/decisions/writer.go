package decisions

import "errors"

// writer commits what is waiting, in batches, until the queue is closed and empty.
func (s *Spool) writer() {
	defer close(s.ended)
	batch := make([]*entry, 0, maxCommit)
	for {
		if batch = s.queue.next(batch[:0]); len(batch) == 0 {
			return
		}
		s.commit(batch)
		clear(batch)
	}
}

// lead commits one batch in the place of the writer.
func (s *Spool) lead() {
	var few [8]*entry
	s.commit(s.queue.batch(few[:0]))
}

// commit ends the turn in which batch was taken. Where it panics, on a goroutine whose owner may recover that, nobody waits for ever.
func (s *Spool) commit(batch []*entry) {
	defer s.queue.written()
	err := errCommit
	defer func() { s.finish(batch, err) }()
	err = s.file.commit(batch)
}

var errCommit = errors.New("the commit was broken off")

// finish tells everybody who waits what became of the commit.
func (s *Spool) finish(batch []*entry, err error) {
	for _, e := range batch {
		if err != nil {
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

func (s *Spool) nudge() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}
