package edge

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/policies"
)

// recorder writes decisions as their org wants it, and remembers what is open, so that it can be closed by its id.
type recorder struct {
	spool *decisions.Spool
	how   interface{ Records(org string) feed.Records }
	log   *slog.Logger
	say   *rate.Limiter

	mu   sync.Mutex
	open map[string]*opened
}

// opened is what waits for its end. Decisions that are counted in one row share an id.
type opened struct {
	decision decisions.Decision
	flows    int
}

func newRecorder(spool *decisions.Spool, how interface{ Records(org string) feed.Records }, log *slog.Logger) *recorder {
	return &recorder{spool: spool, how: how, log: log, say: rate.NewLimiter(rate.Every(time.Second), 5), open: make(map[string]*opened)}
}

// Record writes d down, with as much of its path as the org keeps. After an error nothing may go on.
func (r *recorder) Record(ctx context.Context, d *decisions.Decision) error {
	how := r.how.Records(d.Org)
	d.Path = how.Path(d.Path)
	if err := r.spool.Record(ctx, d); err != nil {
		if !how.BestEffort || !mayGoOn(d, err) {
			return err
		}
		if r.say.Allow() {
			r.log.Warn("a decision could not be recorded; the org lets it go on", "err", err, "org", d.Org, "sandbox", d.Sandbox)
		}
		return nil
	}
	if d.Verdict != policies.Allow.String() || d.Layer == layerDNS || d.Closed {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if o := r.open[d.ID]; o != nil {
		o.flows++
		return nil
	}
	r.open[d.ID] = &opened{*d, 1}
	return nil
}

const layerDNS = "dns"

// mayGoOn says whether d may go on unrecorded, in an org that chose so. A request with a secret never may, nor one after which
// not even the loss is known; and a sandbox can't get itself out of the record by asking too often.
func mayGoOn(d *decisions.Decision, err error) bool {
	switch {
	case len(d.Secrets) > 0, errors.Is(err, decisions.ErrUncounted), errors.Is(err, decisions.ErrBudget):
		return false
	}
	return true
}

func (r *recorder) Close(ctx context.Context, id string, end proxy.Closing) {
	d, ok := r.take(id)
	if !ok {
		return // it went on unrecorded
	}
	if end.Addr.IsValid() && !d.Fold {
		d.Addr = end.Addr.String()
	}
	err := r.spool.CloseFlow(ctx, &d, decisions.Closing{Status: end.Status, BytesIn: end.BytesIn, BytesOut: end.BytesOut,
		DurationMS: end.Duration.Milliseconds(), Error: end.Error})
	if err != nil && r.say.Allow() {
		r.log.Warn("a decision could not be closed", "err", err, "decision", id)
	}
}

// take forgets one flow of a decision.
func (r *recorder) take(id string) (decisions.Decision, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o := r.open[id]
	if o == nil {
		return decisions.Decision{}, false
	}
	if o.flows--; o.flows == 0 {
		delete(r.open, id)
	}
	return o.decision, true
}
