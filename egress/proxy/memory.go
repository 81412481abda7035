package proxy

import (
	"net/netip"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
)

const (
	rememberedFor = 10 * time.Minute
	maxRemembered = 8192 // of all orgs
)

// A question is something about an upstream that only it can answer.
type question uint8

const (
	speaksH2  question = iota // it takes HTTP/2, asked of what a name leads to
	speaksECH                 // it decrypts hellos, asked of one address
)

// A memoryKey names an upstream. What one org learnt is not told to another.
type memoryKey struct {
	about question
	org   string
	host  string     // empty for a destination by address
	addr  netip.Addr // the destination's, or the one that was asked
	port  uint16
}

type remembered struct {
	yes   bool
	until time.Time
}

// A memory keeps what upstreams answered, for a while and at most a number of them.
type memory struct {
	answers *lru.Cache[memoryKey, remembered]
	now     func() time.Time
}

func newMemory(now func() time.Time) (*memory, error) {
	answers, err := lru.New[memoryKey, remembered](maxRemembered)
	return &memory{answers, now}, err
}

func (m *memory) get(k memoryKey) (yes, known bool) {
	r, ok := m.answers.Get(k)
	if left := r.until.Sub(m.now()); !ok || left <= 0 || left > rememberedFor { // more is left only of what was learnt under a clock that was ahead
		return false, false
	}
	return r.yes, true
}

func (m *memory) put(k memoryKey, yes bool) {
	m.answers.Add(k, remembered{yes, m.now().Add(rememberedFor)})
}
