package self

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
)

// A PolicySource gives the snapshot in force for a sandbox; an error is that there is no fresh one. Safe for concurrent use.
type PolicySource interface {
	Snapshot(egress.Binding) (s *policies.Snapshot, revision uint64, err error)
}

// Control is the process that keeps requests for access. Each method is about the sandbox of the binding and nobody else, may
// block until its context ends, and is safe for concurrent use. What it refuses is a *Refusal; every other error is that it is
// not there.
type Control interface {
	// Ask enters a request for access, or returns the open one that equals it.
	Ask(ctx context.Context, b egress.Binding, a Ask) (Access, error)
	// Access returns a request of this sandbox. With wait it answers when that is decided, when the time is over, or at once
	// if nobody is there who could decide.
	Access(ctx context.Context, b egress.Binding, id string, wait time.Duration) (Access, error)
	// Decision returns a decision about this sandbox.
	Decision(ctx context.Context, b egress.Binding, id string) (decisions.Decision, error)
	// Authority returns the root certificate that the sandbox trusts, in PEM.
	Authority(ctx context.Context, b egress.Binding) (string, error)
	// Revoked returns the list, in DER, of what the key with that identifier took back. It is public.
	Revoked(ctx context.Context, b egress.Binding, id string) ([]byte, error)
	// Pause puts the sandbox to sleep.
	Pause(ctx context.Context, b egress.Binding) error
}

// A Place is where the secret of some grant may go.
type Place struct {
	Host string
	Port uint16
}

// A Config is what a Handler needs. The first six must be set.
type Config struct {
	Binding  func(context.Context) (egress.Binding, bool) // of the connection that a request came on
	Policies PolicySource
	Floor    func() *policies.Floor // nil: nothing is fresh
	Denials  *Denials
	Control  Control
	// Granted lists the places that have a grant for the sandbox; an error is that there is no fresh policy.
	Granted func(egress.Binding) ([]Place, error)

	Limits Limits
	Log    *slog.Logger     // default: discards
	Now    func() time.Time // default time.Now
}

// Limits bound what one sandbox may ask. Zero means the default.
type Limits struct {
	Rate     float64       // requests a second; 10
	Burst    int           // requests at once; 40
	AskEvery time.Duration // between asks for access, pauses and the like, over time; 5 s
	AskBurst int           // of them at once; 15
	Waits    int           // that a sandbox has waiting; 4
	OrgWaits int           // that an org's sandboxes have; 16
	AllWaits int           // in all; 64
	Calls    int           // to control under way for a sandbox, waiting ones apart; 2
	AllCalls int           // in all; 32
}

func (c *Config) complete() error {
	if c.Binding == nil || c.Policies == nil || c.Floor == nil || c.Denials == nil || c.Control == nil || c.Granted == nil {
		return errors.New("self: binding, policies, floor, denials, control and granted are all needed")
	}
	l := &c.Limits
	orDefault(&l.Rate, 10)
	orDefault(&l.Burst, 40)
	orDefault(&l.AskEvery, 5*time.Second)
	orDefault(&l.AskBurst, 15)
	orDefault(&l.Waits, 4)
	orDefault(&l.OrgWaits, 16)
	orDefault(&l.AllWaits, 64)
	orDefault(&l.Calls, 2)
	orDefault(&l.AllCalls, 32)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return nil
}

func orDefault[T comparable](v *T, then T) {
	var zero T
	if *v == zero {
		*v = then
	}
}

// An Ask is a request for access, an Access how one stands.
type (
	Ask    = egress.Ask
	Access = egress.Access
)

// A Refusal is an answer of control's that is none of its failures.
type Refusal struct {
	Status int
	Code   string // a stable word
	Detail string
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Detail }

var _ http.Handler = (*Handler)(nil)
