package resolver

import (
	"context"
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
}

// A verdictKey tells verdicts apart that are worth a line each.
type verdictKey struct {
	host     string
	action   policies.Action
	reason   policies.Reason
	rule     string
	revision uint64
}

// recorded is a line that was written, or is being written while done is open.
type recorded struct {
	done  chan struct{}
	until time.Time
	id    string
	err   error
}

func newBox(cfg Config) *box {
	return &box{limit: rate.NewLimiter(rate.Limit(cfg.Rate), cfg.Burst), lookups: rate.NewLimiter(rate.Limit(cfg.LookupRate), cfg.LookupBurst),
		recent: make(map[verdictKey]*recorded), wildcards: make(map[string]*spent)}
}

// once calls record unless the same verdict was recorded within the window, or is being recorded; then it waits for that and
// returns its id. A failure is remembered by nobody but those who waited.
func (b *box) once(ctx context.Context, k verdictKey, now time.Time, window time.Duration, record func() (string, error)) (string, error) {
	b.mu.Lock()
	if r := b.recent[k]; r != nil && now.Before(r.until) {
		b.mu.Unlock()
		select {
		case <-r.done:
			return r.id, r.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	b.makeRoom(now)
	r := &recorded{done: make(chan struct{}), until: now.Add(window)}
	b.recent[k] = r
	b.mu.Unlock()

	r.id, r.err = record()
	close(r.done)
	if r.err != nil {
		b.mu.Lock()
		if b.recent[k] == r {
			delete(b.recent, k)
		}
		b.mu.Unlock()
	}
	return r.id, r.err
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
