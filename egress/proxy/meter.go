package proxy

import (
	"context"
	"errors"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// Meters gives each connection its Meter. Safe for concurrent use.
type Meters interface {
	Meter(egress.Binding) Meter
}

// A Meter counts what one connection moves between the sandbox and the outside, and holds it to the bandwidth of its sandbox and
// org. Safe for concurrent use.
type Meter interface {
	// In counts n bytes that moved to the sandbox, Out those that moved from it. They return when more may move, or ctx ends.
	In(ctx context.Context, n int)
	Out(ctx context.Context, n int)
	// Chunk is how many bytes, of most, may move at once without In and Out knowing of it.
	Chunk(most int64) int64
	// Pipes reserves the descriptors that a copy within the kernel takes, until done is called. Without them the bytes are copied
	// by hand.
	Pipes() (done func(), ok bool)
}

// A LimitError is a limit that was met; the verdict says which.
type LimitError struct{ Verdict policies.Verdict }

func (e *LimitError) Error() string { return "limit: " + e.Verdict.Reason.String() }

// full is the refusal for a flow that the table, or a dial that the descriptors have no room for.
func (j judgement) full(err error) judgement {
	var limit *LimitError
	if errors.As(err, &limit) {
		j.v = limit.Verdict
		return j
	}
	return j.deny(policies.ReasonBudget)
}

// refuseFull refuses a connection that a limit has no room for. One that is refused for a month is told so in its own protocol, which
// takes a while: so it counts.
func (c *connection) refuseFull(j judgement) (handed bool) {
	if j.v.Reason != policies.ReasonQuota {
		return c.drop(j)
	}
	remove, err := c.p.cfg.Flows.Add(Flow{ID: c.id, Binding: c.binding, Request: j.req, Local: true, Live: &c.live, Kill: c.kill})
	if err != nil {
		return c.drop(j)
	}
	c.onClosed(remove)
	return c.refuse(j)
}

// unmetered is the Meter of connections where none is configured.
type unmetered struct{}

func (unmetered) In(context.Context, int)       {}
func (unmetered) Out(context.Context, int)      {}
func (unmetered) Chunk(most int64) int64        { return most }
func (unmetered) Pipes() (done func(), ok bool) { return func() {}, true }

// meter is what counts a connection. What stays here is not counted.
func (p *Proxy) meter(b egress.Binding, local bool) Meter {
	if local || p.cfg.Meters == nil {
		return unmetered{}
	}
	return p.cfg.Meters.Meter(b)
}

// came counts bytes from the sandbox, and makes it wait if it is too fast; went counts those to it.
func (c *connection) came(n int) {
	if n > 0 {
		c.live.Out.Add(int64(n))
		c.meter.Out(c.ctx, n)
	}
}

func (c *connection) went(n int) {
	if n > 0 {
		c.live.In.Add(int64(n))
		c.meter.In(c.ctx, n)
	}
}

// lives says which recorded decision a flow lives by.
func (j judgement) lives(live *egress.Live, decision, level string) {
	live.Judge(egress.Judged{Decision: decision, Level: level, Protocol: j.req.Protocol.String(), Method: j.req.Method,
		Rule: j.v.Rule, RuleLayer: j.v.Layer, Version: j.v.Version, Revision: j.revision})
}
