package canary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
)

// Org and Sandbox are who the canary is to the edge: no org of the store, and always the same sandbox.
const (
	Org     = "org_canary"
	Sandbox = "sbx_00000000-0000-7000-8000-000000000000"
)

// limit is how long one round may take.
const limit = 45 * time.Second

// A Layer is where something was refused.
type Layer string

// The layers that a round proves.
const (
	Kernel Layer = "kernel" // packets that no policy could allow
	DNS    Layer = "dns"    // a name that no rule names
	Proxy  Layer = "proxy"  // a connection that no rule names, and one to a closed address
)

// Layers lists them all.
var Layers = []Layer{Kernel, DNS, Proxy}

// An Attempt is one way out that was tried inside.
type Attempt struct {
	Attempt string `json:"attempt"`
	Layer   Layer  `json:"layer"`
	Outcome string `json:"outcome"`
	Out     bool   `json:"out"`
}

// A Config is what a Canary needs; all of the functions.
type Config struct {
	Start  func(context.Context) error              // makes the sandbox; it may be there from a round that was cut off
	Try    func(context.Context) ([]Attempt, error) // runs the probe in it
	Remove func(context.Context) error              // removes it; none is no error
	Settle func(context.Context)                    // returns when what was recorded has been given to Note, or could not be
	Every  time.Duration                            // default a minute
	Log    *slog.Logger
	Now    func() time.Time
}

// A LayerProof is when a layer was last seen to hold.
type LayerProof struct {
	Layer    Layer     `json:"layer"`
	Holds    bool      `json:"holds" doc:"In the last round."`
	ProvenAt time.Time `json:"proven_at,omitzero" doc:"When it last did; absent: not yet."`
	Detail   string    `json:"detail,omitempty" doc:"Why it does not."`
}

// A Proof is what is known of denial on this node.
type Proof struct {
	Holds    bool         `json:"holds" doc:"Every layer did in the last round."`
	ProvenAt time.Time    `json:"proven_at,omitzero" doc:"When every layer last did at once."`
	TriedAt  time.Time    `json:"tried_at,omitzero" doc:"When the last round ended."`
	Error    string       `json:"error,omitempty" doc:"Why the last round could not be made."`
	Layers   []LayerProof `json:"layers" nullable:"false"`
}

// A Canary is safe for concurrent use.
type Canary struct {
	cfg Config

	mu      sync.Mutex
	proof   Proof
	decided []decisions.Decision // of the round under way
}

// New makes a canary that has proven nothing yet.
func New(cfg Config) (*Canary, error) {
	if cfg.Start == nil || cfg.Try == nil || cfg.Remove == nil || cfg.Settle == nil {
		return nil, errors.New("a canary needs start, try, remove and settle")
	}
	if cfg.Every <= 0 {
		cfg.Every = time.Minute
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c := &Canary{cfg: cfg}
	for _, l := range Layers {
		c.proof.Layers = append(c.proof.Layers, LayerProof{Layer: l})
	}
	return c, nil
}

// Run makes a round at once and then one each period, until ctx ends.
func (c *Canary) Run(ctx context.Context) {
	period := time.NewTicker(c.cfg.Every)
	defer period.Stop()
	for {
		c.Round(ctx)
		select {
		case <-ctx.Done():
			return
		case <-period.C:
		}
	}
}

// Note takes a decision that the edge recorded, if it is about the canary, and reports whether it was.
func (c *Canary) Note(d decisions.Decision) bool {
	if d.Sandbox != Sandbox || d.Org != Org {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.decided) < 1000 {
		c.decided = append(c.decided, d)
	}
	return true
}

// Proof is what is known now.
func (c *Canary) Proof() Proof {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.proof
	p.Layers = slices.Clone(p.Layers)
	return p
}

// Round tries once.
func (c *Canary) Round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c.mu.Lock()
	c.decided = nil
	c.mu.Unlock()
	attempts, err := c.attempts(ctx)
	if ctx.Err() != nil && err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return // the process ends
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proof.TriedAt, c.proof.Error = c.cfg.Now().UTC(), ""
	if err != nil {
		c.proof.Holds, c.proof.Error = false, err.Error()
		for i := range c.proof.Layers {
			c.proof.Layers[i].Holds, c.proof.Layers[i].Detail = false, "the last round could not be made"
		}
		c.cfg.Log.Warn("whether denial holds could not be tried", "err", err)
		return
	}
	c.judge(attempts)
}

// attempts makes the sandbox, lets it try and removes it.
func (c *Canary) attempts(ctx context.Context) (_ []Attempt, err error) {
	defer func() {
		// Also what an earlier round left behind.
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		if e := c.cfg.Remove(clean); e != nil {
			err = errors.Join(err, fmt.Errorf("removing the sandbox: %w", e))
		}
	}()
	if err := c.cfg.Start(ctx); err != nil {
		return nil, fmt.Errorf("making the sandbox: %w", err)
	}
	attempts, err := c.cfg.Try(ctx)
	if err != nil {
		return nil, fmt.Errorf("trying: %w", err)
	}
	c.cfg.Settle(ctx)
	return attempts, nil
}

// judge says which layers held. The caller holds the lock.
func (c *Canary) judge(attempts []Attempt) {
	tried, out := map[Layer]int{}, map[Layer][]string{}
	for _, a := range attempts {
		tried[a.Layer]++
		if a.Out {
			out[a.Layer] = append(out[a.Layer], a.Attempt+": "+a.Outcome)
		}
	}
	denied := map[Layer]int{}
	for _, d := range c.decided {
		l := Proxy
		if d.Layer == "dns" {
			l = DNS
		}
		if d.Verdict == policies.Allow.String() {
			out[l] = append(out[l], "the edge allowed "+d.Host+d.Addr)
		} else {
			denied[l]++
		}
	}
	c.proof.Holds = true
	for i := range c.proof.Layers {
		p := &c.proof.Layers[i]
		switch p.Detail = ""; {
		case len(out[p.Layer]) > 0:
			p.Detail = strings.Join(out[p.Layer], "; ")
			c.cfg.Log.Error("something got out of a sandbox that may reach nothing", "layer", p.Layer, "detail", p.Detail)
		case tried[p.Layer] == 0:
			p.Detail = "nothing was tried"
		case p.Layer != Kernel && denied[p.Layer] == 0: // the kernel's own refusals are counted, not recorded
			p.Detail = "the edge recorded no denial"
		}
		p.Holds = p.Detail == ""
		if p.Holds {
			p.ProvenAt = c.proof.TriedAt
		}
		c.proof.Holds = c.proof.Holds && p.Holds
	}
	if c.proof.Holds {
		c.proof.ProvenAt = c.proof.TriedAt
	}
}
