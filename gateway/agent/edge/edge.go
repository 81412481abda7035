package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/ca"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/egress/dial"
	"portreeve.dev/egress/flows"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/egress/resolver"
	"portreeve.dev/egress/self"
	"portreeve.dev/gateway/agent/cage"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/clock"
	"portreeve.dev/gateway/internal/outbound"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/policies"
)

// An Edge is the state of the process. Its parts are set by start, before any link.
type Edge struct {
	log      *slog.Logger
	node     *child.Sibling
	control  *child.Sibling
	bindings *egress.Bindings
	names    *resolver.Names
	holder   *feed.Holder
	clock    clock.Clock // of the run; by it ends what ends by time
	spool    *decisions.Spool
	machine  string // whose spool it is
	flushes  *flushes
	flows    *flows.Table
	usage    *usage
	dialer   *dial.Dialer
	resolver *resolver.Server
	proxy    *proxy.Proxy
	denials  self.Denials
	self     *self.Handler
	issuer   *ca.Issuer
	doors    *doors

	caged   atomic.Bool
	serving atomic.Bool

	parts   context.Context // of what serves: it ends when the edge has drained, or with the process
	end     context.CancelFunc
	fail    context.CancelFunc // ends the process, to be started again
	running sync.WaitGroup
}

// Limits of an end: how long what is open may go on, and how long its parts may take once they are cut.
const (
	drainLimit = 3 * time.Second
	endLimit   = time.Second
)

// Run is the life of the process.
func Run(ctx context.Context) error {
	e := newEdge(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	ctx, e.fail = context.WithCancel(ctx)
	defer e.fail()
	err := child.Run(ctx, child.Spec{
		Start:    e.start,
		Stop:     e.stop,
		Siblings: map[string]*child.Sibling{"node": e.node, "control": e.control},
	})
	e.finish()
	return err
}

func newEdge(log *slog.Logger) *Edge {
	e := &Edge{log: log, flushes: newFlushes(), fail: func() {}}
	e.bindings = egress.NewBindings(e.now)
	e.parts, e.end = context.WithCancel(context.Background())
	// All names of all sandboxes come in one frame.
	e.node = &child.Sibling{Mux: link.NewMux(), Limits: link.Limits{Frame: 256 << 20}}
	// The state of all orgs comes in one frame, of which each org has its share.
	e.control = &child.Sibling{Mux: link.NewMux(), Up: e.up, Limits: link.Limits{Frame: 256 << 20}}
	return e
}

// now is the time by which things end here.
func (e *Edge) now() time.Time { return e.clock.Now() }

// finish ends the parts. It doesn't wait long: without a supervisor nothing of a sandbox may be served on.
func (e *Edge) finish() {
	e.end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.running.Wait()
	}()
	select {
	case <-done:
	case <-time.After(endLimit):
	}
}

func (e *Edge) start(_ context.Context, raw json.RawMessage, files []*os.File) (any, []*os.File, error) {
	var start role.EdgeStart
	if err := json.Unmarshal(raw, &start); err != nil {
		return nil, nil, err
	}
	if err := e.build(start); err != nil {
		return nil, nil, err
	}
	if err := e.doors.listen(start, files); err != nil {
		return nil, nil, err
	}
	report, err := cage.Enter(cage.Config{Role: cage.Edge, ReadWrite: []string{start.Dir}, Sources: start.Sources, InsecureWithoutLandlock: start.Uncaged})
	if err != nil {
		return nil, nil, err
	}
	if err := report.SelfCheck(); err != nil {
		return nil, nil, err
	}
	e.caged.Store(true)
	e.doors.serve()
	e.log.Info("edge serves", "landlock_abi", report.LandlockABI)
	return role.Caged{LandlockABI: report.LandlockABI, Checked: report.Checked}, nil, nil
}

// build makes the parts; it runs before the cage, which lets nothing be read afterwards.
func (e *Edge) build(start role.EdgeStart) (err error) {
	e.clock = start.Clock
	dir := filepath.Join(start.Dir, "spool")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the spool: %w", err)
	}
	if e.spool, err = decisions.Open(dir, decisions.Config{Rate: float64(start.Limits.Decisions), Burst: 10 * start.Limits.Decisions,
		Late: true, Now: e.now}); err != nil { // what can't be opened now refuses until it can
		return err
	}
	e.machine = start.Machine
	if e.names, err = resolver.NewNames(resolver.NamesConfig{Range: start.Synthetic, PerSandbox: start.Limits.Names, OnAdd: e.tellName}); err != nil {
		return err
	}
	e.holder = feed.NewHolder(policies.FloorConfig{Hard: start.Hard, Always: start.Always}, e.policyChanged, e.now)
	roots, err := outbound.Roots(start.SystemRoots, start.UpstreamCA)
	if err != nil {
		return err
	}
	if e.dialer, err = outbound.New(start.UpstreamDNS, start.Upstream, roots, e.now); err != nil {
		return err
	}
	share, err := e.descriptors()
	if err != nil {
		return err
	}
	if e.flows, err = flows.New(flows.Config{Policies: e.holder, Bindings: e.bindings, Floor: e.holder.Floor, Now: e.now, Limits: flows.Limits{PerSandbox: start.Limits.Connections}, Descriptors: share,
		MustSee: injector{e.holder}.Granted, Holds: injector{e.holder}.holds}); err != nil {
		return err
	}
	if e.usage, err = openUsage(start.Dir, e.flows, e.now, e.log); err != nil {
		return err
	}
	recorder := noting{newRecorder(e.spool, e.holder, e.log), &e.denials}
	e.resolver, err = resolver.New(resolver.Config{
		Bindings: e.bindings, Policies: e.holder, Recorder: recorder, Names: e.names, Floor: e.holder.Floor,
		Rate: float64(start.Limits.Lookups), Burst: 5 * start.Limits.Lookups, DistinctNames: start.Limits.Names, Lookup: realLookup(e.dialer, e.flows), Now: e.now, Log: e.log,
	})
	if err != nil {
		return err
	}
	e.issuer, err = ca.NewIssuer(ca.IssuerConfig{Signer: authority{&e.control.Peer}, Mark: e.holder.Authority, Now: e.now, Shown: time.Now})
	if err != nil {
		return err
	}
	if e.self, err = e.newSelf(); err != nil {
		return err
	}
	e.proxy, err = proxy.New(proxy.Config{
		Bindings: e.bindings, Policies: fresh{e.holder}, Floor: e.holder.Floor, Names: names{e.names}, Recorder: recorder,
		Dialer: dialer{e.dialer, e.flows}, Flows: flowTable{e.flows}, Meters: flowTable{e.flows}, UpstreamRoots: roots, Now: e.now, Log: e.log,
		Certificates: e.issuer, Injector: injector{e.holder}, HashKey: e.holder.HashKey,
		NameBudget: e.resolver.Charge, Self: e.self, SelfAddr: e.names.Self(), AllowOuterECH: start.HiddenNames,
	})
	if err != nil {
		return err
	}
	if e.doors, err = e.newDoors(); err != nil {
		return err
	}
	e.registerNode()
	e.holder.Register(e.control.Mux)
	e.registerFlows()
	link.Handle(e.control.Mux, role.EdgeFlush, e.flush)
	return nil
}

// up tells control over one link what was decided and what was counted.
func (e *Edge) up(ctx context.Context, conn *link.Conn) {
	var counting sync.WaitGroup
	defer counting.Wait()
	counting.Go(func() { e.usage.ship(ctx, conn) })
	e.ship(ctx, conn)
}

// policyChanged puts what hangs on the policy under the newest one.
func (e *Edge) policyChanged() {
	e.dialer.SetWays(e.holder.Ways())
	e.dialer.SetFloor(e.holder.Floor())
	e.doors.follow()
	e.usage.limit(e.holder.Limits())
	if n := e.flows.Rejudge(); n > 0 {
		e.log.Info("a policy change ended flows", "flows", n)
	}
	e.proxy.Refresh()
}

// stop lets live requests end while the supervisor waits. That some had to be cut is no failure.
func (e *Edge) stop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	err := e.proxy.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	e.finish()
	e.usage.last(ctx, e.control.Now())
	return errors.Join(err, e.spool.Close())
}
