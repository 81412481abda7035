package feed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/dial"
	"portreeve.dev/gateway/internal/clock"
	"portreeve.dev/gateway/link"
	"portreeve.dev/policies"
	"portreeve.dev/secrets"
)

// Why there is no snapshot. Each is a refusal of whatever asked.
var (
	ErrNoState  = errors.New("no policy has arrived yet")
	ErrStale    = errors.New("policy is stale: control is silent")
	ErrUnknown  = errors.New("sandbox has no policy")
	ErrRevision = errors.New("policy is older than the sandbox may run under")
)

// A Holder is the edge's end of the feed. It is safe for concurrent use.
type Holder struct {
	clock   func() time.Duration // since boot
	wall    func() time.Time
	base    policies.FloorConfig // the floor without the exemptions of the state
	changed func()               // called after a new state is in force

	mu     sync.RWMutex
	now    *compiled // nil before the first state
	beat   time.Duration
	newest uint64 // what the last heartbeat named
}

// compiled is a State made ready; it never changes.
type compiled struct {
	revision  uint64
	floor     *policies.Floor
	sandboxes map[string]entry
	records   map[string]Records  // by org
	limits    map[string]Limits   // by org
	ways      map[string]dial.Way // by org
	stale     time.Duration       // the longest that any sandbox may go on without a heartbeat

	authorities map[string]string // by org

	attached []Attachment
	doorKeys map[string][]DoorKey // by org
}

type entry struct {
	org      string
	policy   string // the named one; empty is the ceiling
	snapshot *policies.Snapshot
	stale    time.Duration     // how long it may be gone by without a heartbeat; 0 is FreshFor
	injector *secrets.Injector // of the org
}

// NewHolder returns a Holder without any policy. base holds the floor that no state changes; changed, which may be nil,
// is called after each new state is in force. Exemptions end by now; nil is time.Now.
func NewHolder(base policies.FloorConfig, changed func(), now func() time.Time) *Holder {
	if changed == nil {
		changed = func() {}
	}
	if now == nil {
		now = time.Now
	}
	return &Holder{clock: clock.SinceBoot, wall: now, base: base, changed: changed}
}

// Register lets the peer behind mux, which must be control, feed h.
func (h *Holder) Register(mux *link.Mux) {
	link.Handle(mux, Policies, func(_ context.Context, s State) (Applied, error) {
		closed, err := h.apply(s)
		return Applied{s.Revision, closed}, err
	})
	link.Handle(mux, Beats, func(_ context.Context, b Heartbeat) (struct{}, error) {
		h.Heartbeat(b.Revision)
		return struct{}{}, nil
	})
}

// Apply puts s in force. What of it can't be used is closed: one org's fault must not be felt by another. An error means that
// nothing has changed.
func (h *Holder) Apply(s State) error {
	_, err := h.apply(s)
	return err
}

// apply is Apply, and returns what was closed.
func (h *Holder) apply(s State) ([]Closed, error) {
	next, closed, err := compile(s, h.base)
	if err != nil {
		return nil, fmt.Errorf("applying policy revision %d: %w", s.Revision, err)
	}
	h.mu.Lock()
	if h.now != nil && s.Revision < h.now.revision {
		h.mu.Unlock()
		return nil, fmt.Errorf("applying policy revision %d: %d is in force", s.Revision, h.now.revision)
	}
	h.now, h.beat, h.newest = next, h.clock(), max(h.newest, s.Revision)
	h.mu.Unlock()
	h.changed()
	return closed, nil
}

// Heartbeat extends the life of the state in force, if it is the newest.
func (h *Holder) Heartbeat(revision uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.newest = max(h.newest, revision)
	if h.now != nil && h.now.revision >= h.newest {
		h.beat = h.clock()
	}
}

// Snapshot returns the policy of a binding and its revision, or the reason why nothing may pass. Where every layer of the policy
// says failure_mode last_known, there is one for max_stale after the last heartbeat, though it is not fresh.
func (h *Holder) Snapshot(b egress.Binding) (*policies.Snapshot, uint64, error) {
	e, revision, _, err := h.entry(b)
	return e.snapshot, revision, err
}

// entry also says whether it is fresh. What isn't may judge, for as long as the policy says, and do nothing else.
func (h *Holder) entry(b egress.Binding) (e entry, revision uint64, fresh bool, err error) {
	now, silence := h.state()
	if now == nil {
		return entry{}, 0, false, ErrNoState
	}
	fresh = silence <= FreshFor
	if !fresh && silence > now.stale {
		return entry{}, 0, false, ErrStale
	}
	if now.revision < b.MinRevision {
		return entry{}, now.revision, false, ErrRevision
	}
	e, ok := now.sandboxes[b.Sandbox]
	switch {
	case !ok || e.org != b.Org:
		return entry{}, now.revision, false, ErrUnknown
	case !fresh && silence > e.stale:
		return entry{}, 0, false, ErrStale
	}
	return e, now.revision, fresh, nil
}

// Injector returns the secrets of a binding's org, with the name of the sandbox's policy. Only a fresh policy has any: the last known
// one doesn't say which grants there still are.
func (h *Holder) Injector(b egress.Binding) (injector *secrets.Injector, policy string, err error) {
	e, _, fresh, err := h.entry(b)
	if err == nil && !fresh {
		err = ErrStale
	}
	if err != nil {
		return nil, "", err
	}
	return e.injector, e.policy, nil
}

// Granted reports whether a secret is granted to the host, as far as is known; without any policy every host counts as granted.
func (h *Holder) Granted(b egress.Binding, host string) bool {
	e, _, _, err := h.entry(b)
	return err != nil || e.injector.Granted(host)
}

// Authority returns what stands for the authority of an org by the last state that came. It is there for as long as any policy is:
// a root that signs no more doesn't sign either where control is silent.
func (h *Holder) Authority(org string) string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.now == nil {
		return ""
	}
	return h.now.authorities[org]
}

// Floor returns the floor in force; nil, which refuses everything, while no policy can be in force. Ask for the snapshot first:
// the floor is there for as long as any sandbox may go on. An exemption ends by the wall clock, whether or not control is heard.
func (h *Holder) Floor() *policies.Floor {
	now, silence := h.state()
	if now == nil || silence > max(FreshFor, now.stale) {
		return nil
	}
	return now.floor.At(h.wall())
}

// state returns what is in force, if anything, and for how long control has been silent about it.
func (h *Holder) state() (now *compiled, silence time.Duration) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.now, h.clock() - h.beat
}

func compile(s State, base policies.FloorConfig) (*compiled, []Closed, error) {
	c := &compiled{revision: s.Revision, sandboxes: make(map[string]entry, len(s.Sandboxes)), records: make(map[string]Records, len(s.Orgs)),
		limits: make(map[string]Limits, len(s.Orgs)), ways: make(map[string]dial.Way, len(s.Orgs)), doorKeys: make(map[string][]DoorKey, len(s.Orgs)),
		authorities: make(map[string]string, len(s.Orgs))}
	var closed []Closed
	var err error
	if c.floor, closed, err = NewFloor(s.Exempt, base); err != nil {
		return nil, nil, err
	}
	orgs := make(map[string]*profiles, len(s.Orgs))
	for _, o := range s.Orgs {
		c.records[o.ID], c.limits[o.ID] = o.Records, o.Limits
		c.doorKeys[o.ID], c.authorities[o.ID] = o.DoorKeys, o.Authority
		c.ways[o.ID] = dial.Way{Direct: o.Direct, Sources: o.Sources}
		p, faults := newProfiles(o)
		orgs[o.ID], closed = p, append(closed, faults...)
	}
	for _, box := range s.Sandboxes {
		p, ok := orgs[box.Org]
		if !ok {
			closed = append(closed, Closed{Org: box.Org, Sandbox: box.ID, Reason: "its org is not in the state"})
			continue
		}
		if box.Attached != nil {
			c.attached = append(c.attached, box.attachment())
		}
		snapshot, err := p.snapshot(box)
		if err != nil {
			closed = append(closed, Closed{Org: box.Org, Sandbox: box.ID, Reason: err.Error()})
			snapshot = nothing
		}
		stale := staleOf(snapshot)
		c.stale = max(c.stale, stale)
		c.sandboxes[box.ID] = entry{box.Org, box.Policy, snapshot, stale, p.injector}
	}
	return c, closed, nil
}

// staleOf is how long a snapshot may be gone by once control is silent.
func staleOf(s *policies.Snapshot) time.Duration {
	if mode, stale := s.Failure(); mode == policies.FailLastKnown {
		return min(stale, policies.MaxStaleCap)
	}
	return 0
}

// NewFloor opens what the exemptions say. One that says what can't be opened opens nothing.
func NewFloor(exempt []Exemption, base policies.FloorConfig) (*policies.Floor, []Closed, error) {
	bare, err := policies.NewFloor(base)
	if err != nil {
		return nil, nil, err
	}
	var closed []Closed
	var open []policies.Exemption
	for i, e := range exempt {
		prefix, err := netip.ParsePrefix(e.CIDR)
		one := policies.Exemption{CIDR: prefix, Ports: e.Ports, Orgs: e.Orgs, ExpiresAt: e.ExpiresAt}
		if err == nil {
			_, err = bare.With(one)
		}
		if err != nil {
			closed = append(closed, Closed{Reason: fmt.Sprintf("floor exemption %d: %v", i, err)})
			continue
		}
		open = append(open, one)
	}
	floor, err := bare.With(open...)
	return floor, closed, err
}
