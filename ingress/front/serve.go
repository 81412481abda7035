package front

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"portreeve.dev/ingress/route"
	"portreeve.dev/policies/httphead"
)

// Serve accepts from both listeners, of which either may be nil, until ctx ends or one fails. It closes them.
func (f *Front) Serve(ctx context.Context, secure, plain net.Listener) error {
	if secure != nil && f.tls == nil {
		return errors.New("front: TLS without certificates")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var accepting, serving sync.WaitGroup
	for _, l := range []struct {
		net.Listener
		prepare func(context.Context, net.Conn)
	}{{secure, f.handshake}, {plain, f.guard}} {
		if l.Listener == nil {
			continue
		}
		stop := context.AfterFunc(ctx, func() { l.Close() })
		defer stop()
		accepting.Go(func() { cancel(f.accept(ctx, l.Listener, l.prepare)) })
	}
	serving.Go(func() { _ = f.server.Serve(f.inbox) })
	<-ctx.Done()
	accepting.Wait()
	f.inbox.Close()
	drain, done := context.WithTimeout(context.WithoutCancel(ctx), f.cfg.Drain)
	defer done()
	if f.server.Shutdown(drain) != nil {
		f.server.Close()
	}
	serving.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// accept takes connections as long as there is room for them. At the end it waits for those that are being prepared.
func (f *Front) accept(ctx context.Context, l net.Listener, prepare func(context.Context, net.Conn)) error {
	var preparing sync.WaitGroup
	defer preparing.Wait()
	for {
		nc, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				nc.Close()
			}
			return context.Canceled
		case isTemporary(err):
			timer := time.NewTimer(50 * time.Millisecond) // out of descriptors: some will be closed
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		case err != nil:
			return fmt.Errorf("accepting on %v: %w", l.Addr(), err)
		}
		select {
		case f.slots <- struct{}{}:
		default:
			nc.Close()
			continue
		}
		slot := &slot{Conn: nc, free: func() { <-f.slots }}
		preparing.Go(func() { prepare(ctx, slot) })
	}
}

func isTemporary(err error) bool {
	var ne interface{ Temporary() bool }
	return errors.As(err, &ne) && ne.Temporary()
}

// handshake ends TLS and hands the connection to the server: HTTP/2 as it is, HTTP/1 behind a guard.
func (f *Front) handshake(ctx context.Context, nc net.Conn) {
	c := tls.Server(nc, f.tls)
	hctx, cancel := context.WithTimeout(ctx, f.cfg.Hello)
	defer cancel()
	if err := c.HandshakeContext(hctx); err != nil {
		c.Close()
		return
	}
	if c.ConnectionState().NegotiatedProtocol == "h2" {
		f.inbox.put(c)
		return
	}
	f.guard(ctx, c)
}

func (f *Front) guard(_ context.Context, nc net.Conn) { f.inbox.put(newGuard(nc, f.cfg.Head)) }

// serve is the server's handler.
func (f *Front) serve(w http.ResponseWriter, r *http.Request) {
	defer f.recover()
	defer hurryBody(w, r)
	p, _ := r.Context().Value(peerKey{}).(*peer)
	in, problem := f.admit(w, r, p)
	if problem != nil {
		Answer(w, r, *problem)
		return
	}
	f.cfg.Handler(w, r, in)
}

// recover notes a panic of ours and cuts the connection. http.ErrAbortHandler is how handlers cut it on purpose.
func (f *Front) recover() {
	switch v := recover(); v {
	case nil:
	case http.ErrAbortHandler:
		panic(v)
	default:
		f.cfg.Log.Error("a request made us panic", "err", fmt.Sprint(v), "stack", string(debug.Stack()))
		panic(http.ErrAbortHandler)
	}
}

// bodyPatience is how long a client may take to send what nobody has read of its body.
const bodyPatience = 2 * time.Second

// hurryBody bounds what the server does before it sends an answer: it reads what is left of the body, however long that takes.
func hurryBody(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyPatience))
	}
}

var (
	misdirected = Problem{Status: http.StatusMisdirectedRequest, Code: "misdirected", Detail: "the host of the request is not served on this connection"}
	badHost     = Problem{Status: http.StatusBadRequest, Code: "bad_host", Detail: "the host of the request is malformed"}
)

// admit says whose request it is, or why it is nobody's.
func (f *Front) admit(w http.ResponseWriter, r *http.Request, p *peer) (Inbound, *Problem) {
	if p == nil {
		return Inbound{}, &misdirected
	}
	if refusal := refusal(r, p); refusal != nil {
		w.Header().Set("Connection", "close")
		return Inbound{}, &Problem{Status: refusal.Status, Code: "bad_request", Detail: refusal.Detail}
	}
	host, port, err := route.Split(r.Host)
	if err != nil {
		return Inbound{}, &badHost
	}
	if !f.cfg.Zone.Contains(host) || p.secure && p.name != host {
		return Inbound{}, &misdirected
	}
	in := Inbound{Host: host, Authority: host, Client: p.addr, Secure: p.secure}
	if port != "" {
		if r.Host == host+":"+port {
			in.Authority = r.Host
		} else {
			in.Authority = host + ":" + port
		}
	}
	return in, nil
}

// refusal says why a request is not read. Those of HTTP/1 were checked by the guard.
func refusal(r *http.Request, p *peer) *httphead.Refusal {
	if r.ProtoMajor >= 2 {
		return httphead.CheckRequest(r)
	}
	if r.Method == httphead.Refused {
		if p.guard != nil && p.guard.reader.Refusal() != nil {
			return p.guard.reader.Refusal()
		}
		return &httphead.Refusal{Status: http.StatusBadRequest, Detail: "malformed request"}
	}
	return nil
}

// Takeover takes the client's connection over from the server, for a WebSocket.
func Takeover(w http.ResponseWriter) (net.Conn, *bufio.Reader, error) {
	nc, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, nil, err
	}
	if g, ok := nc.(*guard); ok {
		g.reader.Release()
	}
	return nc, rw.Reader, nil
}
