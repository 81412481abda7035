package ingress

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"portreeve.dev/ingress/access"
	"portreeve.dev/ingress/certs"
	"portreeve.dev/ingress/forward"
	"portreeve.dev/ingress/front"
	"portreeve.dev/ingress/route"
	"portreeve.dev/ingress/streams"
	"portreeve.dev/ingress/wake"
)

// Config of a Server. What has no default must be set.
type Config struct {
	Domain     string         // tunnels are named under it
	CookieKeys [][]byte       // of 32 bytes or more; the first one signs. Secret
	Issuer     certs.Issuer   // nil for a server without TLS
	Waker      wake.Waker     // gateway: through control to the node
	Dialer     forward.Dialer // gateway: through inward
	Log        *slog.Logger   // default: none

	// PageAfter is how long a browser's address bar waits for a wake before it gets the page; default 0: at once. All others
	// are held for Hold.
	PageAfter  time.Duration
	Hold       time.Duration // default 30 s
	PortBudget time.Duration // for the app's port to open after a wake; default 5 s

	Now      func() time.Time  // default time.Now
	Earliest func() time.Time  // see certs.Config; default Now
	Table    route.TableConfig // OnChange and Now are the Server's own
	Wake     wake.Config       // bounds; Waker, Hold and Now are the Server's own
	Front    front.Config      // deadlines and bounds; the rest is the Server's own
	Limit    int               // streams per tunnel; default 2048
}

// A Server is the whole of ingress.
type Server struct {
	cfg     Config
	zone    route.Zone
	table   *route.Table
	gate    *access.Gate
	flights *wake.Flights
	streams *streams.Index
	forward *forward.Forwarder
	front   *front.Front
}

// New returns a Server without any route.
func New(c Config) (*Server, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Server{cfg: c}
	var err error
	if s.zone, err = route.NewZone(c.Domain); err != nil {
		return nil, err
	}
	if s.gate, err = access.NewGate(c.CookieKeys, c.Now); err != nil {
		return nil, err
	}
	w := c.Wake
	w.Waker, w.Hold, w.Now = c.Waker, c.Hold, c.Now
	if s.flights, err = wake.New(w); err != nil {
		return nil, err
	}
	if s.forward, err = forward.New(forward.Config{Dialer: c.Dialer, PortBudget: c.PortBudget}); err != nil {
		return nil, err
	}
	s.streams = streams.New(streams.Config{Limit: c.Limit, Now: c.Now})
	t := c.Table
	t.Now, t.OnChange = c.Now, s.changed
	s.table = route.NewTable(t)
	f := c.Front
	f.Zone, f.Handler, f.Log = s.zone, s.serve, c.Log
	if c.Issuer != nil {
		source, err := certs.New(certs.Config{Issuer: c.Issuer, Known: s.table.Known, Now: c.Now, Earliest: c.Earliest})
		if err != nil {
			return nil, err
		}
		f.Certificate = source.Get
	}
	if s.front, err = front.New(f); err != nil {
		return nil, err
	}
	return s, nil
}

// Routes is the table that control feeds.
func (s *Server) Routes() *route.Table { return s.table }

// Serve serves both listeners, of which either may be nil, until ctx ends or one fails. A Server serves once.
func (s *Server) Serve(ctx context.Context, secure, plain net.Listener) error {
	if secure == nil && plain == nil {
		return errors.New("ingress: nothing to serve")
	}
	// Requests get the front's time to end; WebSockets are told at once, as no server waits for them.
	stop := context.AfterFunc(ctx, s.streams.Close)
	err := s.front.Serve(ctx, secure, plain)
	stop()
	s.streams.Close()
	s.flights.Close()
	s.forward.Close()
	return err
}

// changed brings what is open in line with a route.
func (s *Server) changed(old, now *route.Record) {
	s.streams.Changed(now)
	switch now.State {
	case route.Running:
		s.forward.Retire(now.Tunnel, now.Generation-1)
	case route.Paused:
		s.forward.Retire(now.Tunnel, now.Generation)
	default:
		s.forward.Retire(now.Tunnel, ^uint64(0))
	}
	if old == nil || old.State != now.State || old.Generation != now.Generation {
		s.cfg.Log.Info("route changed", "tunnel", now.Tunnel, "sandbox", now.Sandbox, "state", now.State.String(), "generation", now.Generation)
	}
}
