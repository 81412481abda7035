package resolver

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"portreeve.dev/policies"
)

// maxRecent is how many recorded verdicts of one sandbox are remembered; beyond, some are recorded once more.
const maxRecent = 512

// A box is what the server remembers of one sandbox.
type box struct {
	limit   *rate.Limiter
	lookups *rate.Limiter // that leave

	mu        sync.Mutex
	wildcards map[string]*spent
	inFlight  int
	conns     int
	recent    map[verdictKey]*recorded
	counting  map[*recorded]*time.Timer // those with repetitions that are in no line yet
}

// A verdictKey tells verdicts apart that are worth a line each.
type verdictKey struct {
	host     string
	action   policies.Action
	reason   policies.Reason
	rule     string
	revision uint64
}

func newBox(cfg Config) *box {
	return &box{limit: rate.NewLimiter(rate.Limit(cfg.Rate), cfg.Burst), lookups: rate.NewLimiter(rate.Limit(cfg.LookupRate), cfg.LookupBurst),
		recent: make(map[verdictKey]*recorded), counting: make(map[*recorded]*time.Timer), wildcards: make(map[string]*spent)}
}

func (b *box) makeRoom(now time.Time) {
	if len(b.recent) < maxRecent {
		return
	}
	for k, r := range b.recent {
		if !now.Before(r.until) {
			delete(b.recent, k)
		}
	}
	if len(b.recent) >= maxRecent {
		clear(b.recent)
	}
}

// enter counts something up to limit, and reports whether there was room.
func (b *box) enter(n *int, limit int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if *n >= limit {
		return false
	}
	*n++
	return true
}

func (b *box) leave(n *int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*n--
}
