package explicit

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"

	"portreeve.dev/egress"
	"portreeve.dev/egress/credentials"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/policies"
	"portreeve.dev/policies/httphead"
)

// A Proxy judges, records, dials and serves. *proxy.Proxy is one.
type Proxy interface {
	ServeDoor(context.Context, net.Conn, egress.Binding, proxy.DoorTarget)
	RefuseDoor(context.Context, egress.Binding, proxy.DoorTarget, policies.Reason, string) *proxy.DoorRefusal
}

var _ Proxy = (*proxy.Proxy)(nil)

// Config of a Server.
type Config struct {
	Proxy Proxy
	Head  time.Duration // for the first head, credential included; default 10 s
	Log   *slog.Logger  // default: discards
}

// A Server serves connections of HTTP proxy clients. Make it with New.
type Server struct {
	cfg     Config
	goproxy *goproxy.ProxyHttpServer
	http    *http.Server
	inbox   *egress.Inbox
	serving sync.WaitGroup
	refused atomic.Uint64
}

// New checks the configuration and starts nothing.
func New(cfg Config) (*Server, error) {
	if cfg.Proxy == nil {
		return nil, errors.New("explicit: a proxy is needed")
	}
	if cfg.Head <= 0 {
		cfg.Head = 10 * time.Second
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, inbox: egress.NewInbox()}
	s.goproxy = s.newGoproxy()
	s.http = &http.Server{
		Handler: s, ErrorLog: log.New(io.Discard, "", 0), MaxHeaderBytes: httphead.MaxHead, DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout: cfg.Head,
		ConnContext:       func(ctx context.Context, nc net.Conn) context.Context { return context.WithValue(ctx, headKey{}, nc) },
	}
	s.http.SetKeepAlivesEnabled(false) // one head each: whatever follows is somebody else's to read
	return s, nil
}

// Run serves until ctx ends, and returns when what it handed on has ended too.
func (s *Server) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		s.inbox.Close()
		s.http.Close()
	})
	defer stop()
	err := s.http.Serve(s.inbox)
	s.serving.Wait()
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Refused counts the connections that were turned away before it was known whose they are.
func (s *Server) Refused() uint64 { return s.refused.Load() }

// ServeConn serves one connection and takes it over. It returns once it is known whose the connection is and it was handed on, or
// when it was refused: until then whoever calls has to count it.
func (s *Server) ServeConn(ctx context.Context, nc net.Conn, keeper credentials.Keeper) {
	_ = nc.SetReadDeadline(time.Now().Add(s.cfg.Head))
	h, head, rest, err := httphead.ReadProxy(nc)
	var refusal *httphead.Refusal
	switch {
	case errors.As(err, &refusal):
		s.refuseHead(ctx, nc, keeper, head, refusal)
		return
	case err != nil:
		s.silent(ctx, nc, keeper, err)
		return
	}
	_ = nc.SetReadDeadline(time.Time{})
	c := &headConn{Conn: nc, ctx: ctx, keeper: keeper, connect: h.Connect(), head: head, unread: head, rest: rest, woken: make(chan struct{}), settled: make(chan struct{})}
	if !s.inbox.Put(c) {
		nc.Close()
		return
	}
	<-c.settled
}

// silent is the end of a connection that never said what it wants.
func (s *Server) silent(ctx context.Context, nc net.Conn, keeper credentials.Keeper, err error) {
	defer nc.Close()
	var ne net.Error
	if !errors.As(err, &ne) || !ne.Timeout() {
		return // it left
	}
	if b, ok := keeper.Known(); ok {
		s.cfg.Proxy.RefuseDoor(ctx, b, proxy.DoorTarget{}, policies.ReasonTimeout, "")
		return
	}
	s.refused.Add(1)
}

// refuseHead answers a head that can't be read in one way, and records it where it is known whose it is: by the socket, or by
// the one credential in it, which serves for nothing else.
func (s *Server) refuseHead(ctx context.Context, nc net.Conn, keeper credentials.Keeper, head []byte, refusal *httphead.Refusal) {
	reason := policies.ReasonParse
	if refusal.Status == http.StatusRequestHeaderFieldsTooLarge {
		reason = policies.ReasonHeadTooLarge
	}
	message := "The request was refused: " + refusal.Detail + "."
	told := plainRefusal(refusal.Status, reason, message)
	b, ok := keeper.Known()
	if sent := httphead.FieldOf(head, "proxy-authorization"); !ok && len(sent) > 0 {
		a := admit(ctx, keeper, sent)
		b, ok = a.Binding, a.Reason == ""
	}
	if ok {
		told = s.cfg.Proxy.RefuseDoor(ctx, b, proxy.DoorTarget{}, reason, message)
		told.Status = refusal.Status
	} else {
		s.refused.Add(1)
	}
	hangUp(nc, told)
}
