package decisions

import "sync"

// share counts the bytes that are in the spool or on their way there, in all and per org.
type share struct {
	mu    sync.Mutex
	max   int64
	org   int64
	total int64
	byOrg map[string]int64
}

func newShare(c Config) *share {
	return &share{max: c.MaxBytes, org: int64(float64(c.MaxBytes) * c.OrgShare), byOrg: make(map[string]int64)}
}

// take reserves n bytes for org, or says why not.
func (s *share) take(org string, n int64, closing bool) error {
	max, own := s.max, s.org
	if closing {
		max += int64(float64(max) * closingReserve)
		own += int64(float64(own) * closingReserve)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.byOrg[org]+n > own:
		return ErrShare
	case s.total+n > max:
		return ErrFull
	}
	s.add(org, n)
	return nil
}

// give returns n bytes.
func (s *share) give(org string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(org, -n)
}

func (s *share) add(org string, n int64) {
	s.total += n
	s.byOrg[org] += n
	if s.byOrg[org] <= 0 {
		delete(s.byOrg, org)
	}
}

// begin adds what a file holds that was just opened.
func (s *share) begin(held map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for org, n := range held {
		s.add(org, n)
	}
}

// of returns what an org holds.
func (s *share) of(org string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byOrg[org]
}

func (s *share) used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}
