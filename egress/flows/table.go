package flows

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/fair"
	"portreeve.dev/policies"
)

// PolicySource gives the snapshot that a sandbox is judged by now, and its revision. It fails when there is no fresh one. It is
// safe for concurrent use and does not block.
type PolicySource interface {
	Snapshot(egress.Binding) (*policies.Snapshot, uint64, error)
}

// Bindings says what a binding is by now; *egress.Bindings fits.
type Bindings interface {
	Current(egress.Binding) (egress.Binding, bool)
}

// Config of a Table. The first three are needed.
type Config struct {
	Policies PolicySource
	Bindings Bindings
	Floor    func() *policies.Floor // the current one
	// MustSee, if set, reports whether everything that goes to a host must be seen, as where a secret is granted to it: opaque flows
	// to it end.
	MustSee func(b egress.Binding, host string) bool
	// Holds, if set, reports whether a secret that a flow to a host carries is still granted there. Without it, nothing is carried on.
	Holds  func(b egress.Binding, host string, port uint16, c Carried) bool
	Limits Limits // of orgs that SetLimits doesn't name
	// Descriptors are the process's, divided between orgs; each connection takes one. Nil: they are not counted.
	Descriptors *fair.Share
	Every       time.Duration    // how often Run judges all again; default 1 s
	Now         func() time.Time // default time.Now
}

// A Table is safe for concurrent use.
type Table struct {
	cfg Config

	over chan struct{} // something in it: an org may have used up its quota

	mu    sync.Mutex
	live  map[*entry]struct{}
	orgs  map[string]*org
	byOrg map[string]Limits
}

// An entry is one flow in the table. over is set by whoever ends it first: remove, or the one that kills it.
// allowed says that it was allowed at some time: one that never was is being refused by its owner, who says why in its own way.
type entry struct {
	Flow
	over    atomic.Bool
	allowed atomic.Bool
}

// New makes an empty table.
func New(cfg Config) (*Table, error) {
	if cfg.Policies == nil || cfg.Bindings == nil || cfg.Floor == nil {
		return nil, errors.New("flow table: policies, bindings and floor are all needed")
	}
	cfg.Limits = cfg.Limits.withDefaults()
	if cfg.Every <= 0 {
		cfg.Every = time.Second
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Table{cfg: cfg, over: make(chan struct{}, 1), live: make(map[*entry]struct{}), orgs: make(map[string]*org)}, nil
}

// Add enters a flow. Call it before the verdict is asked for: then no switch of the policy falls between the two. Whoever adds
// asks for the verdict itself, and calls remove when the connection is over or was denied. A flow that has a Remote was allowed
// and dialled already: the next Rejudge ends it if it no longer is. A limit that is met is a *LimitError.
func (t *Table) Add(f Flow) (remove func(), err error) {
	if f.ID == "" || f.Kill == nil || f.Binding.Sandbox == "" || f.Binding.Org == "" {
		return nil, fmt.Errorf("adding flow %q: id, binding and kill are all needed", f.ID)
	}
	e := &entry{Flow: f}
	e.allowed.Store(f.Remote.IsValid() || t.judge(&e.Flow).Allowed())
	if err := t.enter(e); err != nil {
		return nil, err
	}
	return func() { t.leave(e) }, nil
}

func (t *Table) enter(e *entry) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch o := t.org(e.Binding.Org); {
	case e.Within != "": // its connection counts, and bounds what is within
		if !e.Local && o.usage.over() {
			return o.usedUp()
		}
		if err := o.roomWithin(&e.Flow, t.cfg.Now()); err != nil {
			return err
		}
	default:
		if !t.TakeDescriptors(e.Binding.Org, 1) {
			return ErrDescriptors
		}
		if err := o.room(&e.Flow, t.cfg.Now()); err != nil {
			t.GiveDescriptors(e.Binding.Org, 1)
			return err
		}
	}
	t.live[e] = struct{}{}
	return nil
}

// org returns what is known of an org. The caller holds the lock.
func (t *Table) org(id string) *org {
	o := t.orgs[id]
	if o == nil {
		o = &org{id: id, to: make(map[destination]int), boxes: make(map[string]*box)}
		o.usage.month = MonthOf(t.cfg.Now())
		o.set(t.limitsOf(id))
		t.orgs[id] = o
	}
	return o
}

// leave takes e out of the table. The connection counts until then, also when it was killed: its sockets may still be open.
func (t *Table) leave(e *entry) {
	e.over.Store(true)
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.live[e]; !ok {
		return
	}
	delete(t.live, e)
	t.org(e.Binding.Org).gone(&e.Flow)
	if e.Within == "" {
		t.GiveDescriptors(e.Binding.Org, 1)
	}
}

// kill ends e unless it is over already.
func (e *entry) kill(r policies.Reason) bool {
	if e.over.Swap(true) {
		return false
	}
	e.Kill(r)
	return true
}

// entries copies those that match, so that nothing is judged or killed under the lock.
func (t *Table) entries(match func(*Flow) bool) []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]*entry, 0, len(t.live))
	for e := range t.live {
		if match == nil || match(&e.Flow) {
			out = append(out, e)
		}
	}
	return out
}

// List copies the flows of an org and a sandbox; empty is any.
func (t *Table) List(org, sandbox string) []Flow {
	found := t.entries(func(f *Flow) bool {
		return (org == "" || f.Binding.Org == org) && (sandbox == "" || f.Binding.Sandbox == sandbox)
	})
	out := make([]Flow, len(found))
	for i, e := range found {
		out[i] = e.Flow
	}
	return out
}

// Len is how many flows are live.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.live)
}

// KillSandbox ends all flows of a sandbox and says how many.
func (t *Table) KillSandbox(sandbox string, r policies.Reason) (n int) {
	for _, e := range t.entries(func(f *Flow) bool { return f.Binding.Sandbox == sandbox }) {
		if e.kill(r) {
			n++
		}
	}
	return n
}

// Run judges all flows again and again, until ctx ends.
func (t *Table) Run(ctx context.Context) error {
	tick := time.NewTicker(t.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.over:
			t.enforce()
		case <-tick.C:
			t.Rejudge()
			t.enforce()
		}
	}
}
