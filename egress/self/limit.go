package self

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"portreeve.dev/egress"
)

// limits hold what each sandbox may still ask. An idle sandbox costs nothing: its buckets are full, which is the same as none.
type limits struct {
	cfg Limits

	mu    sync.Mutex
	boxes map[string]*bucket
	sweep int

	waits, calls slots
}

type bucket struct{ all, asks *rate.Limiter }

// sweepAt is the number of sandboxes at which full buckets are forgotten.
const sweepAt = 1024

func newLimits(cfg Limits) *limits {
	return &limits{cfg: cfg, boxes: make(map[string]*bucket), sweep: sweepAt}
}

func (l *limits) of(sandbox string, now time.Time) *bucket {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, ok := l.boxes[sandbox]
	if !ok {
		l.forgetIdle(now)
		k = &bucket{rate.NewLimiter(rate.Limit(l.cfg.Rate), l.cfg.Burst), rate.NewLimiter(rate.Every(l.cfg.AskEvery), l.cfg.AskBurst)}
		l.boxes[sandbox] = k
	}
	return k
}

func (l *limits) forgetIdle(now time.Time) {
	if len(l.boxes) < l.sweep {
		return
	}
	for id, k := range l.boxes {
		if k.all.TokensAt(now) >= float64(l.cfg.Burst) && k.asks.TokensAt(now) >= float64(l.cfg.AskBurst) {
			delete(l.boxes, id)
		}
	}
	l.sweep = max(sweepAt, 2*len(l.boxes))
}

func (l *limits) allow(sandbox string, now time.Time) bool {
	return l.of(sandbox, now).all.AllowN(now, 1)
}

func (l *limits) ask(sandbox string, now time.Time) bool {
	return l.of(sandbox, now).asks.AllowN(now, 1)
}

// wait and call take a place among what is under way at control; nil when there is none. The link to control is shared with
// the decisions on their way there: asking must not fill it.
func (l *limits) wait(b egress.Binding) (free func()) {
	return l.waits.take(l.cfg.AllWaits, share{b.Sandbox, l.cfg.Waits}, share{b.Org, l.cfg.OrgWaits})
}

func (l *limits) call(b egress.Binding) (free func()) {
	return l.calls.take(l.cfg.AllCalls, share{b.Sandbox, l.cfg.Calls}, share{b.Org, max(1, l.cfg.AllCalls/2)})
}

// A share is how many places one key may have.
type share struct {
	key string
	n   int
}

// slots count places by key.
type slots struct {
	mu  sync.Mutex
	all int
	by  map[string]int
}

func (s *slots) take(all int, caps ...share) (free func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= all {
		return nil
	}
	for _, c := range caps {
		if s.by[c.key] >= c.n {
			return nil
		}
	}
	if s.by == nil {
		s.by = make(map[string]int)
	}
	s.all++
	for _, c := range caps {
		s.by[c.key]++
	}
	return func() { s.free(caps) }
}

func (s *slots) free(caps []share) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	for _, c := range caps {
		if s.by[c.key]--; s.by[c.key] <= 0 {
			delete(s.by, c.key)
		}
	}
}
