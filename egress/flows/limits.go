package flows

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"portreeve.dev/policies"
)

// Limits bound what one org and each of its sandboxes may use. Of counts, zero is the default; of bytes, zero is no limit.
type Limits struct {
	PerSandbox     int // connections at once, and as many requests on them; default 1024
	PerOrg         int // connections at once; default 16384
	PerDestination int // connections at once of the org to one host and port; default 2048
	NewPerSecond   int // connections begun by one sandbox, over time, and twice as many at once; default 150

	SandboxIn, SandboxOut int64 // bytes per second of one sandbox, to it and from it
	OrgIn, OrgOut         int64 // of all of them together

	Quota     int64 // bytes of the month, both ways together
	Elsewhere int64 // of these, what others than this table have counted in Month
	Month     string
}

func (l Limits) withDefaults() Limits {
	for field, v := range map[*int]int{&l.PerSandbox: 1024, &l.PerOrg: 16384, &l.PerDestination: 2048, &l.NewPerSecond: 150} {
		if *field <= 0 {
			*field = v
		}
	}
	return l
}

// A LimitError is a limit that was met, as the verdict that follows.
type LimitError struct {
	Verdict policies.Verdict
	which   string
}

func (e *LimitError) Error() string { return e.which }

// Is has errors.Is find the limit whatever its numbers are.
func (e *LimitError) Is(target error) bool {
	other, ok := target.(*LimitError)
	return ok && other.which == e.which
}

func limited(reason policies.Reason, which, message string) *LimitError {
	v := policies.Denied(reason)
	v.Message = message
	return &LimitError{v, which}
}

// Why a flow was not added.
var (
	ErrSandboxFull     = limited(policies.ReasonBudget, "the sandbox has too many connections", "")
	ErrRequestsFull    = limited(policies.ReasonBudget, "the sandbox has too many requests under way", "")
	ErrOrgFull         = limited(policies.ReasonBudget, "the org has too many connections", "")
	ErrDestinationFull = limited(policies.ReasonBudget, "the org has too many connections to this destination", "")
	ErrTooFast         = limited(policies.ReasonBudget, "the sandbox begins connections too fast", "")
	ErrDescriptors     = limited(policies.ReasonBudget, "the org's share of descriptors is used up", "All connections that this machine can hold for the organisation are open; close some, reuse them and retry after a pause.")
	ErrQuota           = limited(policies.ReasonQuota, "the org's bytes of the month are used up", "")
)

// with is the same limit with a sentence that has its number.
func (e *LimitError) with(format string, args ...any) *LimitError {
	return limited(e.Verdict.Reason, e.which, fmt.Sprintf(format, args...))
}

// burstLeast is how much may always move at once: less would cost more in waiting than it keeps back.
const (
	burstLeast = 16 << 10
	burstMost  = 1 << 20
)

// A bucket holds bytes to a rate. Without one it costs a load.
type bucket struct{ limiter atomic.Pointer[rate.Limiter] }

// set changes the rate; what waits already goes on as it was told.
func (b *bucket) set(perSecond int64) {
	if perSecond <= 0 {
		b.limiter.Store(nil)
		return
	}
	burst := int(min(max(perSecond/4, burstLeast), burstMost))
	l := b.limiter.Load()
	switch {
	case l == nil:
		b.limiter.Store(rate.NewLimiter(rate.Limit(perSecond), burst))
	case l.Limit() != rate.Limit(perSecond):
		l.SetLimit(rate.Limit(perSecond))
		l.SetBurst(burst)
	}
}

// wait takes n bytes, and returns when they are earned or ctx ends.
func (b *bucket) wait(ctx context.Context, n int) {
	l := b.limiter.Load()
	if l == nil {
		return
	}
	for n > 0 {
		part := min(n, l.Burst())
		if l.WaitN(ctx, part) != nil {
			return
		}
		n -= part
	}
}

// chunk is how much of most may move before the bucket must know.
func (b *bucket) chunk(most int64) int64 {
	if l := b.limiter.Load(); l != nil {
		return min(most, int64(l.Burst()))
	}
	return most
}

// A box is what the table knows of one sandbox.
type box struct {
	count   int       // its connections
	within  int       // requests on them
	last    time.Time // when one began last
	begun   *rate.Limiter
	in, out bucket
}

func (b *box) set(l Limits) {
	b.in.set(l.SandboxIn)
	b.out.set(l.SandboxOut)
	if b.begun == nil || b.begun.Limit() != rate.Limit(l.NewPerSecond) {
		b.begun = rate.NewLimiter(rate.Limit(l.NewPerSecond), 2*l.NewPerSecond)
	}
}

// A destination is where an org's connections go.
type destination struct {
	host string // or the address
	port uint16
}

func (f *Flow) destination() destination {
	r := &f.Request
	if r.Host != "" {
		return destination{r.Host, r.Port}
	}
	return destination{r.Addr.String(), r.Port}
}

// An org is what the table knows of one.
type org struct {
	id      string
	limits  Limits
	count   int // connections
	to      map[destination]int
	boxes   map[string]*box
	in, out bucket
	usage   usage
}

func (o *org) set(l Limits) {
	o.limits = l
	o.in.set(l.OrgIn)
	o.out.set(l.OrgOut)
	for _, b := range o.boxes {
		b.set(l)
	}
	o.usage.bound(l)
}

// boxIdle is how long nothing is forgotten of a sandbox: longer than any of its budgets takes to be full again.
const boxIdle = time.Minute

// box returns what is known of a sandbox. When there are many, those that do nothing are forgotten.
func (o *org) box(sandbox string, now time.Time) *box {
	if b := o.boxes[sandbox]; b != nil {
		return b
	}
	if len(o.boxes) >= 64 {
		for id, b := range o.boxes {
			if b.count == 0 && b.within == 0 && now.Sub(b.last) > boxIdle {
				delete(o.boxes, id)
			}
		}
	}
	b := &box{}
	b.set(o.limits)
	o.boxes[sandbox] = b
	return b
}

// room takes the flow's place in every count, or says which is full and takes none.
func (o *org) room(f *Flow, now time.Time) error {
	b, l := o.box(f.Binding.Sandbox, now), o.limits
	switch {
	case f.Local && b.count < l.PerSandbox: // it goes nowhere
	case o.usage.over():
		return o.usedUp()
	case b.count >= l.PerSandbox:
		return ErrSandboxFull.with("The sandbox has %d connections, which is all that it may have; close some or reuse them.", l.PerSandbox)
	case o.count >= l.PerOrg:
		return ErrOrgFull.with("The organisation has %d connections, which is all that it may have; close some or reuse them.", l.PerOrg)
	case o.to[f.destination()] >= l.PerDestination:
		return ErrDestinationFull.with("The organisation has %d connections to this destination, which is all that it may have; close some or reuse them.", l.PerDestination)
	case !b.begun.AllowN(now, 1):
		return ErrTooFast.with("The sandbox begins more than %d connections per second; slow down and reuse connections.", l.NewPerSecond)
	}
	b.count++
	b.last = now
	o.count++
	if !f.Local {
		o.to[f.destination()]++
	}
	return nil
}

// roomWithin takes the place of a request: by HTTP/2 one connection has many, and each holds memory of ours.
func (o *org) roomWithin(f *Flow, now time.Time) error {
	if !f.isRequest() {
		return nil
	}
	b := o.box(f.Binding.Sandbox, now)
	if b.within >= o.limits.PerSandbox {
		return ErrRequestsFull.with("The sandbox has %d requests under way, which is all that it may have; wait until some have ended.", o.limits.PerSandbox)
	}
	b.within++
	return nil
}

func (o *org) usedUp() error {
	return ErrQuota.with("The organisation's %d bytes of this month are used up; tell the person who runs the sandbox, retries will not help.", o.limits.Quota)
}

// gone gives back what room took.
func (o *org) gone(f *Flow) {
	b := o.boxes[f.Binding.Sandbox] // it is there as long as it counts something
	switch {
	case f.isRequest():
		b.within--
		return
	case f.Within != "":
		return
	}
	b.count--
	o.count--
	if f.Local {
		return
	}
	if d := f.destination(); o.to[d] > 1 {
		o.to[d]--
	} else {
		delete(o.to, d)
	}
}
