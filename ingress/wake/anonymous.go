package wake

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/time/rate"
)

// sweepAt is how many orgs are remembered before those whose budget is whole are forgotten.
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

// anonymous are the budgets of orgs for wakes by callers without a credential. Flights.mu guards them.
type anonymous struct {
	orgs  map[string]*rate.Limiter
	sweep int
}

func newAnonymous() anonymous { return anonymous{make(map[string]*rate.Limiter), sweepAt} }

// take counts one wake of the org, of perMinute in a minute and so many at once.
func (a *anonymous) take(org string, perMinute int, now time.Time) error {
	if perMinute <= 0 {
		return &SpentError{Never: true, RetryAfter: time.Minute}
	}
	l := a.orgs[org]
	if l == nil {
		a.forget(now)
		l = rate.NewLimiter(0, perMinute)
		a.orgs[org] = l
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

// forget drops orgs that have their whole budget: they are as good as new ones.
func (a *anonymous) forget(now time.Time) {
	if len(a.orgs) < a.sweep {
		return
	}
	for org, l := range a.orgs {
		if l.TokensAt(now) >= float64(l.Burst()) {
			delete(a.orgs, org)
		}
	}
	a.sweep = max(sweepAt, 2*len(a.orgs))
}
