package resolver

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
)

// Bindings says whose a source address is; *egress.Bindings fits.
type Bindings interface {
	Lookup(netip.Addr) (egress.Binding, bool)
}

// PolicySource gives the snapshot that a sandbox is judged by now, and its revision. It fails when there is no fresh one, or
// none that reaches the binding's MinRevision. It is safe for concurrent use and does not block.
type PolicySource interface {
	Snapshot(egress.Binding) (*policies.Snapshot, uint64, error)
}

// Recorder keeps decisions; it returns nil when one is durable. *decisions.Spool fits.
type Recorder interface {
	Record(context.Context, *decisions.Decision) error
}

// A Lookup asks for the real addresses of a name that a rule with dns: real allows. It is the dialer's, which judges each answer; its
// denials are *RefusedError; ErrNoSuchName is an answer, every other error a failure.
type Lookup func(ctx context.Context, q Question) (addrs []netip.Addr, ttl time.Duration, err error)

// A Question is what is looked up, and the questions to ask back about what is found.
type Question struct {
	Org, Host string
	Named     bool // the verdict's: only then may an exemption of the floor be told of
	Address   func(netip.Addr) policies.Verdict
	Alias     func(name string) policies.Verdict
}

// ErrNoSuchName: there is no such name, or it has no address.
var ErrNoSuchName = errors.New("no such name")

// A RefusedError is a denial of what a name leads to.
type RefusedError struct {
	Verdict policies.Verdict
	Addr    netip.Addr // what was refused; invalid if a name was
}

func (e *RefusedError) Error() string { return "looking up: refused: " + e.Verdict.Reason.String() }

// Config of a Server. The first five are needed.
type Config struct {
	Bindings Bindings
	Policies PolicySource
	Recorder Recorder
	Names    *Names
	Floor    func() *policies.Floor // the current one; nil from it denies every name as stale

	Rate  float64 // queries per second of one sandbox, over time; default 200
	Burst int     // queries of one sandbox at once; default 1000
	// Lookup answers for rules with dns: real. Nil: their names get synthetic addresses like any other.
	Lookup        Lookup
	LookupRate    float64       // lookups per second of one sandbox that leave, over time; default 10
	LookupBurst   int           // lookups of one sandbox at once; default 200
	LookupTimeout time.Duration // default 3 s; then SERVFAIL
	WildcardNames int           // names below one wildcard that one incarnation may ask for; default 1024
	WildcardBytes int           // bytes of their labels below it, all together; default 16 KiB

	DistinctNames int              // names that one incarnation may get addresses for; default 4096
	NameBytes     int              // bytes of all of them together; default 256 KiB
	Coalesce      time.Duration    // how long the same verdict on the same name is only counted, in one row for all; default 10 s
	RecordTimeout time.Duration    // default 2 s; then SERVFAIL
	InFlight      int              // queries of one sandbox at a time; default 64, beyond: REFUSED
	AllInFlight   int              // UDP queries of all sandboxes at a time, of one org half; default 4096, beyond: not answered
	TCPConns      int              // TCP connections of one sandbox; default 8, beyond: closed
	AllTCPConns   int              // TCP connections of all sandboxes, of one org half; default 1024
	TCPIdle       time.Duration    // how long the next whole query on a TCP connection may take; default 10 s
	Log           *slog.Logger     // default none
	Now           func() time.Time // default time.Now
}

const (
	addressTTL  = 60
	minRealTTL  = 5 * time.Second
	maxRealTTL  = 60 * time.Second
	maxReal     = 8 // addresses in an answer
	negativeTTL = 5
	maxQuery    = 1232 // bytes; no honest question has more
)

func (c Config) withDefaults() (Config, error) {
	if c.Bindings == nil || c.Policies == nil || c.Recorder == nil || c.Names == nil || c.Floor == nil {
		return c, errors.New("resolver configuration: bindings, policies, recorder, names and floor are all needed")
	}
	number := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	number(&c.Burst, 1000)
	number(&c.DistinctNames, 4096)
	number(&c.LookupBurst, 200)
	number(&c.WildcardNames, 1024)
	number(&c.WildcardBytes, 16<<10)
	number(&c.NameBytes, 256<<10)
	number(&c.InFlight, 64)
	number(&c.AllInFlight, 4096)
	number(&c.TCPConns, 8)
	number(&c.AllTCPConns, 1024)
	span := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	span(&c.Coalesce, 10*time.Second)
	span(&c.RecordTimeout, 2*time.Second)
	span(&c.TCPIdle, 10*time.Second)
	span(&c.LookupTimeout, 3*time.Second)
	if c.LookupRate <= 0 {
		c.LookupRate = 10
	}
	if c.Rate <= 0 {
		c.Rate = 200
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, nil
}
