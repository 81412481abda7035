package wake

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// sweepAt is how many budgets are remembered before those that are whole are forgotten.
const sweepAt = 1024

// A SpentError says that callers without a credential may cause no wake of the org now.
type SpentError struct {
	Never      bool // the org lets them cause none at all
	RetryAfter time.Duration
}

func (e *SpentError) Error() string {
	if e.Never {
		return "callers without a credential wake no sandbox of this org"
	}
	return fmt.Sprintf("callers without a credential have used up the org's wakes; the next one is in %v", e.RetryAfter)
}

// anonymous are the budgets for wakes by callers without a credential: of an org, and within it of each sandbox, as one that puts itself to
// sleep and has itself called would else use up the org's. Flights.mu guards them.
type anonymous struct {
	budgets map[budgetKey]*rate.Limiter
	sweep   int
}

type budgetKey struct{ org, sandbox string } // no sandbox: the org's

func newAnonymous() anonymous { return anonymous{make(map[budgetKey]*rate.Limiter), sweepAt} }

// ofOne is the part of an org's budget that one sandbox may use: a quarter, and one at least.
func ofOne(perMinute int) int { return max(1, perMinute/4) }

// take counts one wake of the sandbox, where the org has perMinute in a minute and so many at once.
func (a *anonymous) take(org, sandbox string, perMinute int, now time.Time) error {
	if perMinute <= 0 {
		return &SpentError{Never: true, RetryAfter: time.Minute}
	}
	if err := a.takeOf(budgetKey{org, sandbox}, ofOne(perMinute), now); err != nil {
		return err
	}
	return a.takeOf(budgetKey{org: org}, perMinute, now)
}

func (a *anonymous) takeOf(of budgetKey, perMinute int, now time.Time) error {
	l := a.budgets[of]
	if l == nil {
		a.forget(now)
		l = rate.NewLimiter(0, perMinute)
		a.budgets[of] = l
	}
	if each := rate.Limit(float64(perMinute) / 60); l.Limit() != each || l.Burst() != perMinute { // the org's policy has changed
		l.SetLimitAt(now, each)
		l.SetBurstAt(now, perMinute)
	}
	if l.AllowN(now, 1) {
		return nil
	}
	missing := 1 - l.TokensAt(now)
	return &SpentError{RetryAfter: time.Duration(math.Ceil(missing/float64(l.Limit()))) * time.Second}
}

// forget drops budgets that are whole: they are as good as new ones.
func (a *anonymous) forget(now time.Time) {
	if len(a.budgets) < a.sweep {
		return
	}
	for of, l := range a.budgets {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(a.budgets, of)
		}
	}
	a.sweep = max(sweepAt, 2*len(a.budgets))
}
