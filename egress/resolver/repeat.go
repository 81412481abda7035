package resolver

import (
	"context"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// A line is what a verdict is written down as.
type line struct {
	b     egress.Binding
	v     policies.Verdict
	about subject
}

// recorded is a line that was written, or is being written while done is open, with the repetitions that came since.
type recorded struct {
	line
	done  chan struct{}
	until time.Time // when the same verdict is recorded again
	id    string
	err   error

	// Under the box's lock.
	more        uint64 // repetitions that are in no line yet
	first, last time.Time
}

// once records a line unless the same verdict was recorded within the window, or is being recorded; then it waits for that and
// returns its id: the repetition is counted. A failure is remembered by nobody but those who waited.
func (s *Server) once(ctx context.Context, x *box, k verdictKey, l line, now time.Time, window time.Duration) (string, error) {
	x.mu.Lock()
	if r := x.recent[k]; r != nil && now.Before(r.until) {
		s.repeated(x, r, now)
		x.mu.Unlock()
		select {
		case <-r.done:
			return r.id, r.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	x.makeRoom(now)
	r := &recorded{line: l, done: make(chan struct{}), until: now.Add(window)}
	x.recent[k] = r
	x.mu.Unlock()

	d := decision(l.b, l.v, l.about, now)
	r.err = s.cfg.Recorder.Record(ctx, d)
	r.id = d.ID // of the row that counts it, if it is counted
	close(r.done)
	if r.err != nil {
		x.mu.Lock()
		if x.recent[k] == r {
			delete(x.recent, k)
		}
		x.mu.Unlock()
	}
	return r.id, r.err
}

// repeated counts one repetition. What is counted is written together, after a while: the verdict itself is on record. The caller holds x.mu.
func (s *Server) repeated(x *box, r *recorded, now time.Time) {
	if r.more == 0 {
		r.first = now
		x.counting[r] = time.AfterFunc(min(max(r.until.Sub(now), 0), s.cfg.Coalesce), func() { s.writeRepeated(x, r) })
	}
	r.more++
	r.last = now
}

// writeRepeated records what was counted: one row for all, with how many they are.
func (s *Server) writeRepeated(x *box, r *recorded) {
	<-r.done
	x.mu.Lock()
	n, first, last := r.more, r.first, r.last
	r.more = 0
	delete(x.counting, r)
	x.mu.Unlock()
	if n == 0 || r.err != nil { // those who waited were told
		return
	}
	d := decision(r.b, r.v, r.about, first)
	d.Count, d.Until, d.Closed = n, last.UTC(), true
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.RecordTimeout)
	defer cancel()
	if err := s.cfg.Recorder.Record(ctx, d); err != nil {
		s.complain.Do(func() {
			s.cfg.Log.Warn("repeated queries are missing in the record", "sandbox", r.b.Sandbox, "decisions", n, "err", err)
		})
	}
}

// settle writes what was counted so far in a box, or has it written by whoever has begun to.
func (s *Server) settle(x *box) {
	x.mu.Lock()
	var all []*recorded
	for r, timer := range x.counting {
		if timer.Stop() {
			all = append(all, r)
		}
	}
	x.mu.Unlock()
	for _, r := range all {
		s.writeRepeated(x, r)
	}
}

// settleAll is settle for every sandbox.
func (s *Server) settleAll() {
	s.mu.Lock()
	all := make([]*box, 0, len(s.boxes))
	for _, x := range s.boxes {
		all = append(all, x)
	}
	s.mu.Unlock()
	for _, x := range all {
		s.settle(x)
	}
}
