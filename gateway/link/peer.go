package link

import (
	"context"
	"sync"
)

// A Peer is a sibling process whose link comes and goes as the processes restart. The zero value has no link.
// It is safe for concurrent use.
type Peer struct {
	mu      sync.Mutex
	conn    *Conn
	changed chan struct{}
}

// Set replaces the link; the old one is closed.
func (p *Peer) Set(c *Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != nil {
		p.conn.Close()
	}
	p.conn = c
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// Drop forgets c if it is still the link, and reports whether it was.
func (p *Peer) Drop(c *Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn != c {
		return false
	}
	p.conn = nil
	return true
}

// Now returns the link, nil while there is none.
func (p *Peer) Now() *Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn
}

// Wait returns the link as soon as there is one.
func (p *Peer) Wait(ctx context.Context) (*Conn, error) {
	for {
		p.mu.Lock()
		if p.conn != nil {
			defer p.mu.Unlock()
			return p.conn, nil
		}
		if p.changed == nil {
			p.changed = make(chan struct{})
		}
		changed := p.changed
		p.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Call waits for the link and calls over it.
func (p *Peer) Call(ctx context.Context, method string, in, out any) error {
	c, err := p.Wait(ctx)
	if err != nil {
		return err
	}
	return c.Call(ctx, method, in, out)
}
