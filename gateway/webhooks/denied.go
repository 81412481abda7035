package webhooks

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
)

// How much of the denials of one org a summary tells, and how much is counted for it.
const (
	deniedShown = 50
	deniedKept  = 500
	deniedEvery = time.Minute
)

// A DeniedSummary is the data of egress.denied: what an org's sandboxes were denied in a while.
type DeniedSummary struct {
	From   time.Time           `json:"from"`
	To     time.Time           `json:"to"`
	Total  int                 `json:"total"`
	Denied []DeniedDestination `json:"denied"` // the most frequent first; others are only in the total
}

// A DeniedDestination is one of them.
type DeniedDestination struct {
	Host     string `json:"host,omitempty"`
	Address  string `json:"address,omitempty"`
	Port     uint16 `json:"port,omitempty"`
	Reason   string `json:"reason"`
	Rule     string `json:"rule,omitempty"`
	Times    int    `json:"times"`
	Sandbox  string `json:"sandbox_id"`  // of the first of them
	Decision string `json:"decision_id"` // the first of them
}

type deniedKey struct {
	host, addr, reason, rule string
	port                     uint16
}

type deniedOrg struct {
	from  time.Time
	total int
	by    map[deniedKey]*DeniedDestination
}

// Denials sum up what is denied, so that a sandbox that tries a thousand times is one event a minute.
type Denials struct {
	// Send queues a summary for an org.
	Send func(ctx context.Context, org string, s DeniedSummary) error
	Log  *slog.Logger
	Now  func() time.Time

	mu   sync.Mutex
	orgs map[string]*deniedOrg
}

// Add counts a decision if it denies, or all that it stands for. Its end, should it come, says nothing new.
func (d *Denials) Add(x decisions.Decision) {
	if x.Verdict != policies.Deny.String() || x.Closed && x.Count == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.orgs == nil {
		d.orgs = make(map[string]*deniedOrg)
	}
	o := d.orgs[x.Org]
	if o == nil {
		o = &deniedOrg{from: d.Now().UTC(), by: make(map[deniedKey]*DeniedDestination)}
		d.orgs[x.Org] = o
	}
	times := max(int(x.Count), 1)
	o.total += times
	key := deniedKey{x.Host, x.Addr, x.Reason, x.Rule, x.Port}
	if x.Host != "" {
		key.addr = ""
	}
	have := o.by[key]
	switch {
	case have != nil:
		have.Times += times
	case len(o.by) < deniedKept:
		o.by[key] = &DeniedDestination{Host: x.Host, Address: key.addr, Port: x.Port, Reason: x.Reason, Rule: x.Rule, Times: times, Sandbox: x.Sandbox, Decision: x.ID}
	}
}

// Run sends the summaries, one a minute for each org that has one, until ctx ends.
func (d *Denials) Run(ctx context.Context) {
	tick := time.NewTicker(deniedEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.Flush(ctx)
		}
	}
}

// Flush sends what there is.
func (d *Denials) Flush(ctx context.Context) {
	d.mu.Lock()
	orgs := d.orgs
	d.orgs = nil
	d.mu.Unlock()
	for org, o := range orgs {
		if err := d.Send(ctx, org, o.summary(d.Now().UTC())); err != nil {
			d.Log.Warn("a summary of denials can't be queued", "org", org, "err", err)
		}
	}
}

func (o *deniedOrg) summary(now time.Time) DeniedSummary {
	s := DeniedSummary{From: o.from, To: now, Total: o.total, Denied: []DeniedDestination{}}
	for _, x := range o.by {
		s.Denied = append(s.Denied, *x)
	}
	slices.SortFunc(s.Denied, func(a, b DeniedDestination) int {
		if a.Times != b.Times {
			return b.Times - a.Times
		}
		return strings.Compare(a.Decision, b.Decision)
	})
	s.Denied = s.Denied[:min(len(s.Denied), deniedShown)]
	return s
}
