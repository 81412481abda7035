package feed

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"portreeve.dev/gateway/link"
)

// A Publisher is control's end of a feed: it sends the state at each change, and a heartbeat in between.
type Publisher struct {
	Peer   *link.Peer // who is fed
	Method string     // what the peer takes the state by: Policies or Routes
	// Load reads the state as it is committed, and its revision.
	Load func(ctx context.Context) (state any, revision uint64, err error)
	Log  *slog.Logger

	once sync.Once
	kick chan struct{}

	closed map[Closed]bool // what the peer could not use of the last state; touched by Run alone

	mu      sync.Mutex
	applied uint64        // highest revision that the peer acknowledged
	changed chan struct{} // closed at the next change of applied
}

func (p *Publisher) init() {
	p.once.Do(func() { p.kick, p.changed = make(chan struct{}, 1), make(chan struct{}) })
}

// Publish says that a new revision was committed. It never blocks.
func (p *Publisher) Publish() {
	p.init()
	select {
	case p.kick <- struct{}{}:
	default: // one is waiting, and will read the newest
	}
}

// Run feeds the peer until ctx ends. Each new link gets the whole state.
func (p *Publisher) Run(ctx context.Context) error {
	p.init()
	for ctx.Err() == nil {
		conn, err := p.Peer.Wait(ctx)
		if err != nil {
			return err
		}
		if err := p.serve(ctx, conn); err != nil && ctx.Err() == nil {
			p.Log.Warn("feeding ended", "feed", p.Method, "err", err)
			p.pause(ctx)
		}
	}
	return ctx.Err()
}

// serve feeds one link until it breaks.
func (p *Publisher) serve(ctx context.Context, conn *link.Conn) error {
	beat := time.NewTicker(Beat)
	defer beat.Stop()
	revision, err := p.push(ctx, conn)
	for err == nil {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-conn.Ended(): // the next link gets the state at once, not at the next heartbeat
			return link.ErrClosed
		case <-p.kick:
			revision, err = p.push(ctx, conn)
		case <-beat.C:
			err = conn.Notify(Beats, Heartbeat{revision})
		}
	}
	return err
}

func (p *Publisher) push(ctx context.Context, conn *link.Conn) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, FreshFor)
	defer cancel()
	state, revision, err := p.Load(ctx)
	if err != nil {
		return 0, fmt.Errorf("reading what to feed: %w", err)
	}
	var ack Applied
	if err := conn.Call(ctx, p.Method, state, &ack); err != nil {
		return 0, err
	}
	p.tell(ack.Closed)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied = max(p.applied, ack.Revision)
	close(p.changed)
	p.changed = make(chan struct{})
	return revision, nil
}

// tell logs what the peer can't use, once for as long as it stays so.
func (p *Publisher) tell(closed []Closed) {
	now := make(map[Closed]bool, len(closed))
	for _, c := range closed {
		if now[c] = true; !p.closed[c] {
			p.Log.Error("a part of the policy can't be used; it is closed", "feed", p.Method, "org", c.Org, "sandbox", c.Sandbox, "secret", c.Secret, "err", c.Reason)
		}
	}
	p.closed = now
}

// pause keeps a broken feed from spinning.
func (p *Publisher) pause(ctx context.Context) {
	t := time.NewTimer(50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// WaitApplied returns once the peer runs under revision or a later one.
func (p *Publisher) WaitApplied(ctx context.Context, revision uint64) error {
	p.init()
	for {
		p.mu.Lock()
		applied, changed := p.applied, p.changed
		p.mu.Unlock()
		if applied >= revision {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for revision %d of the %s: %w", revision, p.Method, ctx.Err())
		}
	}
}
