package explicit

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/elazarl/goproxy"

	"portreeve.dev/egress"
	"portreeve.dev/egress/credentials"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/policies"
	"portreeve.dev/policies/hostname"
)

var errNoDial = errors.New("goproxy dials nothing here")

// newGoproxy makes a goproxy that tells CONNECT from the absolute form and gives both away.
func (s *Server) newGoproxy() *goproxy.ProxyHttpServer {
	p := goproxy.NewProxyHttpServer()
	p.Logger = log.New(io.Discard, "", 0)
	noDial := func(context.Context, string, string) (net.Conn, error) { return nil, errNoDial }
	p.Tr = &http.Transport{DialContext: noDial, DialTLSContext: noDial} // and no proxy of the environment
	p.ConnectDial = func(string, string) (net.Conn, error) { return nil, errNoDial }
	p.ConnectDialWithReq = func(*http.Request, string, string) (net.Conn, error) { return nil, errNoDial }
	p.NonproxyHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		write(w, plainRefusal(http.StatusBadRequest, policies.ReasonParse, ""))
	})
	p.OnRequest().HandleConnectFunc(s.onConnect)
	p.OnRequest().HandleConnect(goproxy.AlwaysReject) // the last word: goproxy's own is to accept
	p.OnRequest().DoFunc(s.onAbsolute)
	return p
}

// A visit is a request whose sender is known.
type visit struct {
	conn    *headConn
	w       http.ResponseWriter
	binding egress.Binding
	from    credentials.Keeper
}

type (
	headKey  struct{}
	visitKey struct{}
)

// ServeHTTP checks the credential, for both forms in one place.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, ok := r.Context().Value(headKey{}).(*headConn)
	if !ok {
		panic(http.ErrAbortHandler) // nothing comes here but by ServeConn
	}
	defer c.settle()
	a := admit(c.ctx, c.keeper, r.Header["Proxy-Authorization"])
	if a.Reason != "" {
		status := http.StatusProxyAuthRequired
		if a.Reason == policies.ReasonUnbound {
			status = http.StatusServiceUnavailable // its own socket, but it isn't there, or not yet
		}
		refusal := plainRefusal(status, a.Reason, "")
		switch {
		case !a.Record:
			s.refused.Add(1)
		case a.Reason == policies.ReasonCredential: // whoever guesses must not see, by the answer or its time, that the sandbox is there
			defer s.cfg.Proxy.RefuseDoor(c.ctx, a.Binding, asked(r), a.Reason, "")
		default:
			refusal = s.cfg.Proxy.RefuseDoor(c.ctx, a.Binding, asked(r), a.Reason, "")
		}
		s.away(w, refusal)
		return
	}
	v := &visit{conn: c, w: w, binding: a.Binding, from: c.keeper}
	s.goproxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), visitKey{}, v)))
}

// admit reads a credential of the scheme Basic; more than one, or another, counts as none.
func admit(ctx context.Context, keeper credentials.Keeper, sent []string) credentials.Admission {
	var username, password string
	if len(sent) == 1 {
		r := http.Request{Header: http.Header{"Authorization": sent}}
		username, password, _ = r.BasicAuth()
	}
	return keeper.Admit(ctx, username, password)
}

// onConnect gives the connection of a CONNECT away, to the destination that it names.
func (s *Server) onConnect(_ string, ctx *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) {
	v, ok := ctx.Req.Context().Value(visitKey{}).(*visit)
	if !ok || !v.conn.connect {
		return nil, ""
	}
	return &goproxy.ConnectAction{Action: goproxy.ConnectHijack, Hijack: func(r *http.Request, _ net.Conn, _ *goproxy.ProxyCtx) {
		to, ok := target(r.URL.Host)
		if !ok {
			hangUp(v.conn.Conn, s.cfg.Proxy.RefuseDoor(v.conn.ctx, v.binding, to, policies.ReasonHostInvalid, ""))
			return
		}
		to.Replay = v.conn.rest
		to.Answer = func(refusal *proxy.DoorRefusal) error { return answer(v.conn.Conn, refusal) }
		s.handOn(v, to)
	}}, ctx.Req.URL.Host
}

// onAbsolute gives the connection of a request in absolute form away, with the request.
func (s *Server) onAbsolute(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
	v, ok := r.Context().Value(visitKey{}).(*visit)
	if !ok || v.conn.connect {
		return r, goproxy.NewResponse(r, goproxy.ContentTypeText, http.StatusForbidden, "")
	}
	if _, _, err := http.NewResponseController(v.w).Hijack(); err != nil {
		panic(http.ErrAbortHandler)
	}
	s.handOn(v, proxy.DoorTarget{Forward: true, Replay: append(v.conn.head, v.conn.rest...), Admit: v.again})
	// goproxy writes what it is given, to a connection that is gone.
	return r, goproxy.NewResponse(r, goproxy.ContentTypeText, http.StatusOK, "")
}

// again checks the credential of each request on the connection: it must be of the same sandbox.
func (v *visit) again(sent []string) policies.Reason {
	a := admit(v.conn.ctx, v.from, sent)
	if a.Reason == "" && (a.Binding.Sandbox != v.binding.Sandbox || a.Binding.Incarnation != v.binding.Incarnation) {
		return policies.ReasonCredential
	}
	return a.Reason
}

// handOn gives the connection to the proxy, on a goroutine of its own: the HTTP server's buffers need not live as long.
func (s *Server) handOn(v *visit, to proxy.DoorTarget) {
	s.serving.Go(func() { s.cfg.Proxy.ServeDoor(v.conn.ctx, v.conn.Conn, v.binding, to) })
}

// asked is where a request wants to go, as far as it can be told.
func asked(r *http.Request) proxy.DoorTarget {
	to, _ := target(r.URL.Host)
	return to
}

// target reads an authority; without a port it is that of http.
func target(authority string) (to proxy.DoorTarget, ok bool) {
	host, port := authority, "80"
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		host, port = authority[:i], authority[i+1:]
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return to, false
	}
	to.Port = uint16(n)
	if inside, ok := strings.CutPrefix(host, "["); ok {
		inside, ok = strings.CutSuffix(inside, "]")
		addr, err := netip.ParseAddr(inside)
		if !ok || err != nil || addr.Zone() != "" {
			return to, false
		}
		to.Addr = addr.Unmap()
		return to, true
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		to.Addr = addr
		return to, true
	}
	to.Host, err = hostname.Normalize(host)
	return to, err == nil
}
