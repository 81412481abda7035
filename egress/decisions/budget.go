package decisions

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// budgetLine is how often an overrun of one sandbox is written down.
const budgetLine = 10 * time.Second

// sweepAt is the number of sandboxes at which buckets that are full again are forgotten.
const sweepAt = 4096

// budgets holds one token bucket per sandbox. A bucket that is full is the same as none, so idle ones can go.
type budgets struct {
	mu    sync.Mutex
	rate  rate.Limit
	burst int
	bySbx map[string]*bucket
	sweep int
}

type bucket struct {
	limit *rate.Limiter
	noted time.Time // of the last line about an overrun
}

func newBudgets(c Config) *budgets {
	return &budgets{rate: rate.Limit(c.Rate), burst: c.Burst, bySbx: make(map[string]*bucket), sweep: sweepAt}
}

// spend takes one token; when there is none, note says whether this overrun is the one to be written down.
func (b *budgets) spend(sandbox string, now time.Time) (ok, note bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k, found := b.bySbx[sandbox]
	if !found {
		b.forgetIdle(now)
		k = &bucket{limit: rate.NewLimiter(b.rate, b.burst)}
		b.bySbx[sandbox] = k
	}
	if k.limit.AllowN(now, 1) {
		return true, false
	}
	if !k.noted.IsZero() && now.Sub(k.noted).Abs() < budgetLine {
		return false, false
	}
	k.noted = now
	return false, true
}

func (b *budgets) forgetIdle(now time.Time) {
	if len(b.bySbx) < b.sweep {
		return
	}
	for s, k := range b.bySbx {
		if k.limit.TokensAt(now) >= float64(b.burst) {
			delete(b.bySbx, s)
		}
	}
	b.sweep = max(sweepAt, 2*len(b.bySbx)) // so that many busy sandboxes don't make each new one walk the map
}
