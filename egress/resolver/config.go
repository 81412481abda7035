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

// Config of a Server. The first five are needed.
type Config struct {
	Bindings Bindings
	Policies PolicySource
	Recorder Recorder
	Names    *Names
	Floor    func() *policies.Floor // the current one; nil from it denies every name as stale

	Rate          float64          // queries per second of one sandbox, over time; default 200
	Burst         int              // queries of one sandbox at once; default 1000
	DistinctNames int              // names that one incarnation may get addresses for; default 4096
	NameBytes     int              // bytes of all of them together; default 256 KiB
	Coalesce      time.Duration    // how long the same verdict on the same name isn't recorded again; default 10 s
	RecordTimeout time.Duration    // default 2 s; then SERVFAIL
	InFlight      int              // queries of one sandbox at a time; default 64, beyond: REFUSED
	AllInFlight   int              // UDP queries of all sandboxes at a time; default 2048, beyond: not answered
	TCPConns      int              // TCP connections of one sandbox; default 8, beyond: closed
	AllTCPConns   int              // TCP connections of all sandboxes; default 1024
	TCPIdle       time.Duration    // how long the next whole query on a TCP connection may take; default 10 s
	Log           *slog.Logger     // default none
	Now           func() time.Time // default time.Now
}

const (
	addressTTL  = 60
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
	number(&c.NameBytes, 256<<10)
	number(&c.InFlight, 64)
	number(&c.AllInFlight, 2048)
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
