package egress

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Live is what is known of a flow while it lives. Its owner keeps it as bytes move, whoever lists flows reads it; both at once.
type Live struct {
	Since   time.Time    // set once, before anybody else has it
	In, Out atomic.Int64 // bytes so far, to the sandbox and from it

	moved  atomic.Int64 // when a byte last moved, in nanoseconds after epoch
	judged atomic.Pointer[Judged]
	remote atomic.Pointer[netip.AddrPort]
}

// epoch is where the clock begins that nobody sets: a step of the machine's own must not make busy flows idle.
var epoch = time.Now()

// Moved says that a byte has moved just now, or that it is from now on that none did.
func (l *Live) Moved() { l.moved.Store(int64(time.Since(epoch))) }

// Idle is for how long nothing has moved.
func (l *Live) Idle() time.Duration { return time.Since(epoch) - time.Duration(l.moved.Load()) }

// Judged is the decision that a flow lives by.
type Judged struct {
	Decision  string // id of the recorded decision
	Level     string // identity that was known: http, sni, address
	Protocol  string
	Method    string // of a request
	Rule      string
	RuleLayer string
	Version   int64 // of the policy that decided
	Revision  uint64
}

// Judge says which decision the flow lives by from now on.
func (l *Live) Judge(j Judged) { l.judged.Store(&j) }

// Judged is what Judge said last; the zero value before.
func (l *Live) Judged() Judged {
	if j := l.judged.Load(); j != nil {
		return *j
	}
	return Judged{}
}

// Reach says which address was dialled.
func (l *Live) Reach(a netip.AddrPort) { l.remote.Store(&a) }

// Remote is what Reach said last; the zero value before.
func (l *Live) Remote() netip.AddrPort {
	if a := l.remote.Load(); a != nil {
		return *a
	}
	return netip.AddrPort{}
}
