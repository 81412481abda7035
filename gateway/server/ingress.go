package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"

	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/ingress"
	"portreeve.dev/ingress/certs"
	"portreeve.dev/ingress/forward"
	"portreeve.dev/ingress/route"
)

// edgeOfNet is the state of the ingress process: it holds keys, routes and sockets, and neither a store nor the master key.
type edgeOfNet struct {
	log      *slog.Logger
	node     *child.Sibling
	inward   *child.Sibling
	control  *child.Sibling
	setup    role.IngressStart
	listener net.Listener
	ctx      context.Context // of the process; set by start, before any link
	stop     context.CancelFunc
	fail     func() // ends the process: there is no listener to go on with
	running  sync.WaitGroup

	mu     sync.Mutex
	server *ingress.Server // nil until control has handed over the keys
}

// Ingress is the life of the process.
func Ingress(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	i := newIngress(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	i.fail = cancel
	err := child.Run(ctx, i.life())
	i.running.Wait()
	return err
}

func newIngress(log *slog.Logger) *edgeOfNet {
	i := &edgeOfNet{log: log, fail: func() {}}
	i.node, i.inward, i.control = &child.Sibling{Mux: link.NewMux()}, &child.Sibling{Mux: link.NewMux()}, &child.Sibling{Mux: link.NewMux()}
	link.Handle(i.control.Mux, role.IngressKeys, func(_ context.Context, k role.TunnelKeys) (struct{}, error) {
		return struct{}{}, i.equip(k)
	})
	link.Handle(i.control.Mux, feed.Routes, i.routes)
	link.Handle(i.control.Mux, feed.Beats, func(context.Context, feed.Heartbeat) (struct{}, error) {
		if s := i.now(); s != nil {
			s.Routes().Heartbeat()
		}
		return struct{}{}, nil
	})
	return i
}

func (i *edgeOfNet) life() child.Spec {
	return child.Spec{
		Start: i.start,
		Stop: func(context.Context) error {
			i.stop()
			i.running.Wait()
			return nil
		},
		Siblings: map[string]*child.Sibling{"node": i.node, "inward": i.inward, "control": i.control},
	}
}

func (i *edgeOfNet) start(ctx context.Context, raw json.RawMessage, files []*os.File) (any, []*os.File, error) {
	if err := json.Unmarshal(raw, &i.setup); err != nil {
		return nil, nil, err
	}
	if len(files) != 1 {
		return nil, nil, errors.New("ingress takes one listener")
	}
	listener, err := net.FileListener(files[0])
	files[0].Close()
	if err != nil {
		return nil, nil, fmt.Errorf("taking the listener of the tunnels: %w", err)
	}
	i.listener = listener
	i.ctx, i.stop = context.WithCancel(ctx)
	context.AfterFunc(i.ctx, func() { listener.Close() })
	return struct{}{}, nil, nil
}

// equip begins to serve. Keys that come again, from a control that was started anew, are the same ones.
func (i *edgeOfNet) equip(k role.TunnelKeys) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.server != nil {
		return nil
	}
	authority, err := certs.LoadDevCA(k.Certificate, k.Key)
	if err != nil {
		return err
	}
	server, err := ingress.New(ingress.Config{
		Domain: i.setup.TunnelDomain, CookieKeys: [][]byte{k.Cookie}, Issuer: authority,
		Waker: waker{&i.node.Peer}, Dialer: &sandboxDialer{inward: &i.inward.Peer}, Now: i.setup.Clock.Now, Earliest: i.setup.Clock.Earliest, Log: i.log,
	})
	if err != nil {
		return err
	}
	i.server = server
	i.running.Go(func() { i.serve(server) })
	return nil
}

func (i *edgeOfNet) serve(server *ingress.Server) {
	secure, plain := i.listener, net.Listener(nil)
	if i.setup.Plain {
		s := newSplitter(i.ctx, i.listener)
		i.running.Go(s.run)
		secure, plain = s.secure, s.plain
	}
	if err := server.Serve(i.ctx, secure, plain); i.ctx.Err() == nil {
		i.log.Error("serving tunnels ended; the process is to be started anew", "err", err)
		i.fail()
	}
}

func (i *edgeOfNet) now() *ingress.Server {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.server
}

func (i *edgeOfNet) routes(_ context.Context, s feed.RouteState) (feed.Applied, error) {
	server := i.now()
	if server == nil {
		return feed.Applied{}, errors.New("ingress has no keys yet")
	}
	return feed.Applied{Revision: s.Revision}, server.Routes().Replace(s.Records)
}

// waker asks the node.
type waker struct{ node *link.Peer }

func (w waker) Wake(ctx context.Context, sandbox string, from uint64) (uint64, error) {
	var woken role.Woken
	err := w.node.Call(ctx, role.NodeWake, role.WakeRequest{Sandbox: sandbox, Generation: from}, &woken)
	return woken.Generation, err
}

// dialsEach is how many dials of one sandbox are under way at a time. A sandbox that lets them wait, by not accepting, would
// else take all the calls that inward works on at once, and no other sandbox's would come through.
const dialsEach = 32

// sandboxDialer asks inward for a socket.
type sandboxDialer struct {
	inward *link.Peer

	mu     sync.Mutex
	places map[string]*places // by sandbox, while somebody dials it
}

type places struct {
	taken chan struct{}
	users int // that hold a place or wait for one
}

// place waits until the sandbox may be dialled once more.
func (d *sandboxDialer) place(ctx context.Context, sandbox string) (leave func(), err error) {
	d.mu.Lock()
	p := d.places[sandbox]
	if p == nil {
		if d.places == nil {
			d.places = make(map[string]*places)
		}
		p = &places{taken: make(chan struct{}, dialsEach)}
		d.places[sandbox] = p
	}
	p.users++
	d.mu.Unlock()
	gone := func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if p.users--; p.users == 0 {
			delete(d.places, sandbox)
		}
	}
	select {
	case p.taken <- struct{}{}:
		return func() { <-p.taken; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, fmt.Errorf("dialing %q: others wait for it: %w", sandbox, ctx.Err())
	}
}

func (d *sandboxDialer) Dial(ctx context.Context, rec *route.Record) (net.Conn, error) {
	leave, err := d.place(ctx, rec.Sandbox)
	if err != nil {
		return nil, err
	}
	defer leave()
	conn, err := d.inward.Wait(ctx)
	if err != nil {
		return nil, err
	}
	files, err := conn.CallFiles(ctx, role.InwardDial, role.DialRequest{Sandbox: rec.Sandbox, Generation: rec.Generation, Port: rec.Port}, nil)
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if err != nil {
		return nil, dialError(err)
	}
	if len(files) != 1 {
		return nil, fmt.Errorf("dialing %q: inward sent %d sockets", rec.Sandbox, len(files))
	}
	return net.FileConn(files[0])
}

// dialError turns inward's codes into the forwarder's own words.
func dialError(err error) error {
	var e *link.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Code {
	case role.CodeStaleRoute, role.CodeUnknown:
		return errors.Join(forward.ErrStale, err)
	case role.CodePortClosed:
		return errors.Join(forward.ErrPortClosed, err)
	}
	return err
}
