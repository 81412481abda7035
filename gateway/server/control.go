package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/authorities"
	"portreeve.dev/gateway/canary"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/release"
	"portreeve.dev/gateway/role"
	"portreeve.dev/gateway/sandboxes"
	"portreeve.dev/gateway/webhooks"
	"portreeve.dev/secrets/seal"
)

// control is the state of the process. Its parts are set by start, before any link.
type control struct {
	log       *slog.Logger
	node      *child.Sibling
	edge      *child.Sibling
	inward    *child.Sibling
	ingress   *child.Sibling
	setup     role.ControlStart
	keys      role.TunnelKeys // of ingress
	store     *store.Store
	keyring   *seal.Keyring
	shut      shutSecrets // that keyring can't open
	sandboxes *sandboxes.Service

	authorities *authorities.Service
	canary      *canary.Canary  // nil: the configuration wants none
	publisher   *feed.Publisher // of policies, to the edge
	routes      *feed.Publisher // of tunnels, to ingress
	api         *api.Server
	sender      *webhooks.Sender
	denials     *webhooks.Denials // nil in tests that need none
	http        *http.Server
	hashes      []byte // from which the orgs' keys for hashes of credentials are made
	running     sync.WaitGroup
	life        context.Context // of the process
	unknown     sync.Once       // orgs of the configuration were looked for

	mu      sync.Mutex
	settled map[string]int64 // of each spool, the life before which no flow is open
}

// Control is the life of the process.
func Control(ctx context.Context) error {
	c := &control{life: ctx, log: slog.New(slog.NewJSONHandler(os.Stderr, nil))}
	c.node = &child.Sibling{Mux: link.NewMux(), Up: c.reconcile}
	c.edge = &child.Sibling{Mux: link.NewMux()}
	c.inward = &child.Sibling{Mux: link.NewMux()}
	c.ingress = &child.Sibling{Mux: link.NewMux(), Up: c.equipIngress}
	link.Handle(c.node.Mux, role.NodeEvent, c.event)
	link.Handle(c.inward.Mux, role.InwardHostile, c.hostile)
	link.Handle(c.edge.Mux, role.ControlDecisions, c.keepDecisions)
	link.Handle(c.edge.Mux, role.ControlIntermediate, c.signIntermediate)
	c.registerAccess()
	link.Handle(c.edge.Mux, role.ControlUsage, c.keepUsage)
	err := child.Run(ctx, child.Spec{
		Start:    c.start,
		Stop:     c.stop,
		Siblings: map[string]*child.Sibling{"node": c.node, "edge": c.edge, "inward": c.inward, "ingress": c.ingress},
	})
	c.running.Wait()
	return err
}

// now is the time by which things end, and that is written down.
func (c *control) now() time.Time { return c.setup.Clock.Now() }

// earliest is the time by which things are old, and certificates begin.
func (c *control) earliest() time.Time { return c.setup.Clock.Earliest() }

func (c *control) start(ctx context.Context, raw json.RawMessage, files []*os.File) (any, []*os.File, error) {
	if err := json.Unmarshal(raw, &c.setup); err != nil {
		return nil, nil, err
	}
	if len(files) != 1 {
		return nil, nil, errors.New("control takes one listener")
	}
	listener, err := net.FileListener(files[0])
	files[0].Close()
	if err != nil {
		return nil, nil, fmt.Errorf("taking the API's listener: %w", err)
	}
	ready, err := c.build(ctx)
	if err != nil {
		listener.Close()
		return nil, nil, err
	}
	c.running.Go(func() { c.sendWebhooks(ctx) })
	c.running.Go(func() { c.publisher.Run(ctx) })
	c.running.Go(func() { c.routes.Run(ctx) })
	c.running.Go(func() { c.endOverdue(ctx) })
	c.running.Go(func() { c.endExemptions(ctx) })
	c.running.Go(func() { c.stepAuthorities(ctx) })
	c.running.Go(func() { c.forgetRequests(ctx) })
	if c.canary != nil {
		c.running.Go(func() { c.watchDenial(ctx) })
	}
	c.running.Go(func() { c.trimDecisions(ctx) })
	c.running.Go(func() {
		if err := c.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			c.log.Error("the API ended", "err", err)
		}
	})
	context.AfterFunc(ctx, func() { c.http.Close() })
	return ready, nil, nil
}

// build makes the parts and the first org.
func (c *control) build(ctx context.Context) (*role.ControlReady, error) {
	var err error
	if c.store, c.keyring, err = openStore(ctx, c.setup.Dir, c.now, c.earliest); err != nil {
		return nil, err
	}
	if err = c.openHashKey(ctx); err != nil {
		return nil, err
	}
	c.publisher = &feed.Publisher{Peer: &c.edge.Peer, Method: feed.Policies, Load: c.state, Log: c.log}
	c.routes = &feed.Publisher{Peer: &c.ingress.Peer, Method: feed.Routes, Load: c.routeState, Log: c.log}
	if c.authorities, err = c.newAuthorities(); err != nil {
		return nil, err
	}
	c.sandboxes, err = sandboxes.New(sandboxes.Config{
		Store: c.store, Runner: runner{&c.node.Peer, c.authorities}, Guest: guests{&c.inward.Peer}, Feed: feeds{c.publisher, c.routes}, Log: c.log,
		Sockets: sockets{&c.node.Peer}, Limit: c.setup.Limits.Sandboxes, Now: c.now,
	})
	if err != nil {
		return nil, err
	}
	if c.canary, err = c.newCanary(); err != nil {
		return nil, err
	}
	floor, err := c.bareFloor()
	if err != nil {
		return nil, err
	}
	configured, err := c.configured()
	if err != nil {
		return nil, err
	}
	tunnels, err := c.tunnels()
	if err != nil {
		return nil, err
	}
	if c.sender, err = c.newSender(); err != nil {
		return nil, err
	}
	c.denials = c.newDenials()
	token := newSetupToken()
	server, err := api.New(api.Config{
		Store: c.store, Keyring: c.keyring, Sandboxes: c.sandboxes, Guest: guests{&c.inward.Peer}, Feed: feeds{c.publisher, c.routes}, Floor: floor, FloorNow: c.floorNow, Configured: configured,
		Flows: liveFlows{&c.edge.Peer}, Denial: c.denial, Egress: c.setup.Egress, Tunnels: tunnels, Doors: c.doors(), Authorities: c.authorities, SetupToken: token, Version: release.Version(), Template: c.template, Settle: c.settle, Now: c.now, Log: c.log,
		Limits:   api.Limits{MilliCPU: c.setup.Limits.CPUMillis, MemoryBytes: c.setup.Limits.MemoryBytes, Lifetime: c.setup.Limits.Lifetime},
		Webhooks: c.attempts(),
	})
	if err != nil {
		return nil, err
	}
	c.api = server
	c.http = newHTTPServer(notForTunnels(tunnels.Zone, server), c.log)
	key, err := c.devKey(ctx, server)
	if err != nil {
		return nil, err
	}
	doorRoot, err := c.doorAuthority(ctx)
	if err != nil {
		return nil, err
	}
	authority, err := c.openTunnelKeys(ctx)
	if err != nil {
		return nil, err
	}
	return &role.ControlReady{Key: key, SetupToken: token.Reveal(), TunnelCA: authority, DoorCA: doorRoot.PEM()}, nil
}

func newHTTPServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // mostly scanners
	}
}

func (c *control) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := c.http.Shutdown(ctx); err != nil {
		c.http.Close() // streams that nobody ended
	}
	return c.store.Close()
}
