package front

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"portreeve.dev/ingress/route"
	"portreeve.dev/policies/hostname"
	"portreeve.dev/policies/httphead"
)

// An Inbound is what is known of a request beside itself.
type Inbound struct {
	Host      string // in normal form, inside the zone
	Authority string // Host, and the port that the client named
	Client    netip.Addr
	Secure    bool // over TLS
}

// A Handler serves requests that passed the front.
type Handler func(w http.ResponseWriter, r *http.Request, in Inbound)

// Config of a Front.
type Config struct {
	Zone        route.Zone
	Handler     Handler
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Connections int           // at most; default 16384
	Hello       time.Duration // for a TLS handshake; default 10 s
	Head        time.Duration // for the head of a request; default 10 s
	Idle        time.Duration // between requests; default 2 min
	Drain       time.Duration // for requests under way at the end; default 5 s
	Log         *slog.Logger  // default: none
}

// A Front accepts and reads. Serve may be called once.
type Front struct {
	cfg    Config
	server *http.Server
	tls    *tls.Config
	inbox  *inbox
	slots  chan struct{}
}

// New returns a Front that listens nowhere yet.
func New(c Config) (*Front, error) {
	if c.Handler == nil || c.Zone.Domain() == "" {
		return nil, errors.New("front: a Handler and a Zone are needed")
	}
	for v, d := range map[*time.Duration]time.Duration{&c.Hello: 10 * time.Second, &c.Head: 10 * time.Second, &c.Idle: 2 * time.Minute, &c.Drain: 5 * time.Second} {
		if *v == 0 {
			*v = d
		}
	}
	if c.Connections == 0 {
		c.Connections = 16384
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	f := &Front{cfg: c, inbox: newInbox(), slots: make(chan struct{}, c.Connections)}
	f.server = &http.Server{
		Handler:                      http.HandlerFunc(f.serve),
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            c.Head,
		IdleTimeout:                  c.Idle,
		MaxHeaderBytes:               httphead.MaxHead,
		ConnContext:                  withPeer,
		ErrorLog:                     log.New(io.Discard, "", 0), // noise that any client can make
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: 250, SendPingTimeout: time.Minute},
	}
	if c.Certificate != nil {
		f.tls = &tls.Config{GetCertificate: c.Certificate, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	}
	return f, nil
}

type peerKey struct{}

// A peer is what is known of a connection.
type peer struct {
	addr   netip.Addr
	secure bool
	name   string // the server name of the connection, in normal form
	guard  *guard // of HTTP/1
}

// withPeer notes once per connection what each of its requests needs.
func withPeer(ctx context.Context, nc net.Conn) context.Context {
	var p peer
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		p.addr = a.AddrPort().Addr().Unmap().WithZone("")
	}
	var over *tls.Conn
	switch c := nc.(type) {
	case *tls.Conn:
		over = c
	case *guard:
		p.guard = c
		over, _ = c.Conn.(*tls.Conn)
	}
	if over != nil {
		p.secure = true
		p.name, _ = hostname.Normalize(over.ConnectionState().ServerName)
	}
	return context.WithValue(ctx, peerKey{}, &p)
}
