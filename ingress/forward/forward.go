package forward

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"portreeve.dev/ingress/route"
	"portreeve.dev/ingress/streams"
)

var (
	errNotWanted = errors.New("the app did not want the body")
	errDied      = errors.New("the connection was closed before an answer")
	buffers      = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
)

// freshEnough is how long a connection may have been idle to carry a request that must not be sent twice: no server that
// keeps connections at all closes them so soon.
const freshEnough = 500 * time.Millisecond

// Forward carries r to the app and the answer to w. As long as it returns an error that is not ErrAborted, nothing was
// answered, and with ErrStale and ErrPortClosed nothing was sent to the app either. ctx ends the exchange: it is the
// request's own, or one derived from it.
func (f *Forwarder) Forward(ctx context.Context, w http.ResponseWriter, r *http.Request, hop Hop) error {
	o := newOutgoing(r, &hop)
	for limit := f.cfg.IdleTimeout; ; limit = -1 {
		if !o.repeatable() {
			limit = min(limit, freshEnough)
		}
		c, err := f.connect(ctx, &hop, limit)
		if err != nil {
			return err
		}
		err = f.exchange(ctx, w, o, c)
		if errors.Is(err, errDied) {
			if c.used && o.repeatable() && ctx.Err() == nil {
				continue // it had been closed while idle; once more, on a new one
			}
			return fmt.Errorf("%w: %w", ErrBadAnswer, err)
		}
		return err
	}
}

// connect returns a connection that was idle for at most the limit, or a new one.
func (f *Forwarder) connect(ctx context.Context, hop *Hop, limit time.Duration) (*conn, error) {
	k := key{hop.Record.Tunnel, hop.Generation}
	if limit >= 0 {
		if c := f.pool.take(k, limit); c != nil {
			c.used, c.any = true, false
			c.answered.Store(false)
			return c, nil
		}
	}
	rec := hop.Record
	if rec.Generation != hop.Generation {
		woken := *rec
		woken.Generation, woken.State = hop.Generation, route.Running
		rec = &woken
	}
	return f.dial(ctx, rec, k, hop.Woken)
}

// dial makes a connection. After a wake it tries again until the app listens, or the budget for that is over.
func (f *Forwarder) dial(ctx context.Context, rec *route.Record, k key, woken time.Time) (*conn, error) {
	pauses := [...]time.Duration{5, 10, 20, 40, 50} // milliseconds
	for i := 0; ; i++ {
		dctx, cancel := context.WithTimeout(ctx, f.cfg.DialTimeout)
		nc, err := f.cfg.Dialer.Dial(dctx, rec)
		cancel()
		if err == nil {
			return newConn(nc, k), nil
		}
		switch why := context.Cause(ctx); why {
		case nil:
		case streams.Paused, streams.Stale:
			return nil, fmt.Errorf("%w: %w", ErrStale, why) // nothing was sent
		default:
			return nil, why
		}
		if !errors.Is(err, ErrPortClosed) || time.Since(woken) > f.cfg.PortBudget {
			return nil, fmt.Errorf("dialling the sandbox: %w", err)
		}
		timer := time.NewTimer(pauses[min(i, len(pauses)-1)] * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// exchange carries one request over c, which is given back or closed afterwards.
func (f *Forwarder) exchange(ctx context.Context, w http.ResponseWriter, o *outgoing, c *conn) (err error) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	reuse := false
	var u *upload
	defer func() {
		if stopped := stop(); reuse && stopped {
			f.pool.put(c, true)
			return
		}
		c.Close()
		u.abandon(w)
	}()
	o.writeHead(c.w)
	if o.body != nil {
		if o.r.ProtoMajor == 1 {
			// Else the server takes what is left of the body away as soon as the answer begins.
			_ = http.NewResponseController(w).EnableFullDuplex()
		}
		u = o.upload(c)
	} else if err := c.w.Flush(); err != nil {
		return errors.Join(errDied, err)
	}
	a, err := o.readAnswer(c, w, u)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		if !c.any {
			return errors.Join(errDied, err)
		}
		return fmt.Errorf("%w: %w", ErrBadAnswer, err)
	}
	if a.StatusCode == http.StatusSwitchingProtocols {
		if !stop() {
			return context.Cause(ctx)
		}
		return o.switchProtocols(a, c, w)
	}
	if err := o.passOn(a, c, w); err != nil {
		return err
	}
	reuse = !a.Close && u.finished() && c.r.Buffered() == 0
	return nil
}

// abandon waits until nobody reads the client's body any more: the server takes it back when the handler returns.
func (u *upload) abandon(w http.ResponseWriter) {
	if u == nil {
		return
	}
	u.c.answered.Store(true)
	u.proceed()
	select {
	case <-u.done:
		return
	default:
	}
	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	<-u.done
}
