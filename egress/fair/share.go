package fair

import "sync"

// A Share is safe for concurrent use.
type Share struct {
	total int

	mu   sync.Mutex
	all  int
	held map[string]int
}

// New makes a share of total things.
func New(total int) *Share { return &Share{total: total, held: make(map[string]int)} }

// Take takes n for who, or nothing and says no.
func (s *Share) Take(who string, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held[who]+n > s.total-s.all-n {
		return false
	}
	s.all += n
	s.held[who] += n
	return true
}

// Give gives n back that Take took for who.
func (s *Share) Give(who string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all -= n
	if s.held[who] -= n; s.held[who] <= 0 {
		delete(s.held, who)
	}
}

// Held is how much who holds.
func (s *Share) Held(who string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[who]
}

// Used is how much all hold together.
func (s *Share) Used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// Total is how much there is.
func (s *Share) Total() int { return s.total }
