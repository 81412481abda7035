package proxy

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"portreeve.dev/egress"
	"portreeve.dev/policies/httphead"
)

// A Proxy serves the connections of sandboxes. Make it with New.
type Proxy struct {
	// What a sandbox can have said as often as it likes is said once a second: the log is everybody's disk.
	complain, opening, certifying, injecting rate.Sometimes

	cfg       Config
	http      *http.Server
	inbox     *egress.Inbox
	pools     *pools
	openers   *openers
	memory    *memory
	startHTTP sync.Once
	httpDone  chan struct{}

	unbound atomic.Uint64

	mu        sync.Mutex
	closing   bool
	listeners map[net.Listener]struct{}
	live      map[*connection]struct{}
	empty     chan struct{} // closed when closing and live is empty
}

// New checks the configuration and starts nothing.
func New(cfg Config) (*Proxy, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		complain: rate.Sometimes{Interval: time.Second}, opening: rate.Sometimes{Interval: time.Second},
		certifying: rate.Sometimes{Interval: time.Second}, injecting: rate.Sometimes{Interval: time.Second},
		cfg:       cfg,
		inbox:     egress.NewInbox(),
		httpDone:  make(chan struct{}),
		listeners: make(map[net.Listener]struct{}),
		live:      make(map[*connection]struct{}),
		empty:     make(chan struct{}),
	}
	p.pools = newPools(p)
	if p.openers, err = newOpeners(cfg.Certificates); err != nil {
		return nil, err
	}
	if p.memory, err = newMemory(cfg.Now); err != nil {
		return nil, err
	}
	p.http = p.newServer()
	return p, nil
}

// newServer makes the one server of all HTTP connections, clear and opened. What is strict is in front of it and in the handler.
func (p *Proxy) newServer() *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:                      (*handler)(p),
		Protocols:                    &protocols,
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: p.cfg.Limits.Streams},
		ReadHeaderTimeout:            p.cfg.Timeouts.Head,
		IdleTimeout:                  p.cfg.Timeouts.Idle,
		MaxHeaderBytes:               httphead.MaxHead,
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     discardLog(),
		// The connection's own context, so that a request knows why its connection was ended.
		ConnContext: func(_ context.Context, nc net.Conn) context.Context {
			c := ownerOf(nc)
			return context.WithValue(c.ctx, connectionKey{}, c)
		},
	}
}

// Refresh puts kept upstream connections under the newest secrets. Call it after each change; flows are the flow table's.
func (p *Proxy) Refresh() { p.pools.refresh() }

// Unbound counts the connections that were closed unread because their address was nobody's.
func (p *Proxy) Unbound() uint64 { return p.unbound.Load() }

// Serve accepts connections until ctx ends or the listener is closed; then it returns nil, while connections go on until
// Shutdown. Their LocalAddr is the original destination and their RemoteAddr the sandbox.
func (p *Proxy) Serve(ctx context.Context, ln net.Listener) error {
	if !p.addListener(ln) {
		ln.Close()
		return http.ErrServerClosed
	}
	defer p.dropListener(ln)
	p.startHTTP.Do(func() { go p.serveHTTP() })
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	var pause time.Duration
	for {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			go p.serve(nc)
			continue
		case errors.Is(err, net.ErrClosed):
			return nil
		}
		// Out of descriptors or memory: what is open goes on and will free some.
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		p.cfg.Log.Error("accepting connections", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func (p *Proxy) serveHTTP() {
	defer close(p.httpDone)
	_ = p.http.Serve(p.inbox) // always ErrServerClosed: the inbox fails only when it is closed
}

// Shutdown stops accepting, lets what is under way end, and cuts the rest when ctx ends. It returns ctx's error if it had to.
func (p *Proxy) Shutdown(ctx context.Context) error {
	p.mu.Lock()
	if !p.closing {
		p.closing = true
		if len(p.live) == 0 {
			close(p.empty)
		}
	}
	for ln := range p.listeners {
		ln.Close()
	}
	p.mu.Unlock()
	p.startHTTP.Do(func() { close(p.httpDone) })

	err := p.http.Shutdown(ctx)
	if err == nil {
		select {
		case <-p.empty:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		p.killAll()
		p.http.Close()
		<-p.empty
	}
	p.inbox.Close()
	<-p.httpDone
	p.pools.close()
	return err
}

func (p *Proxy) killAll() {
	p.mu.Lock()
	all := make([]*connection, 0, len(p.live))
	for c := range p.live {
		all = append(all, c)
	}
	p.mu.Unlock()
	for _, c := range all {
		c.end(errShutdown)
	}
}

func (p *Proxy) addListener(ln net.Listener) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return false
	}
	p.listeners[ln] = struct{}{}
	return true
}

func (p *Proxy) dropListener(ln net.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.listeners, ln)
}

// enter counts a connection in; false while shutting down.
func (p *Proxy) enter(c *connection) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return false
	}
	p.live[c] = struct{}{}
	return true
}

func (p *Proxy) leave(c *connection) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.live, c)
	if p.closing && len(p.live) == 0 {
		close(p.empty)
	}
}

// discardLog drops what net/http says about broken clients: it is noise that sandboxes can make at will.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }
