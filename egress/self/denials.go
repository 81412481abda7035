package self

import (
	"slices"
	"sync"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
)

// How much is remembered: of one sandbox, and of how many of them.
const (
	denialsEach  = 64
	denialsBoxes = 4096
)

// Denials remember the last denials of each sandbox, in memory. Safe for concurrent use; the zero value is ready.
type Denials struct {
	mu    sync.Mutex
	boxes map[boxKey]*ring
	order []boxKey // oldest first
}

// A boxKey tells a sandbox from itself before its memory became new, and from whoever has its address later.
type boxKey struct {
	sandbox     string
	incarnation uint64
}

// A ring is the last denials, oldest first.
type ring struct{ last []decisions.Decision }

// Note remembers d if it denies. One that is counted with others comes again under the same id, or once for all of them, with a Count.
func (m *Denials) Note(d *decisions.Decision) {
	if d.Verdict != policies.Deny.String() || d.Closed && d.Count == 0 {
		return
	}
	key := boxKey{d.Sandbox, d.Incarnation}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.boxes[key]
	if r == nil {
		r = m.enter(key)
	}
	last := *d
	if i := slices.IndexFunc(r.last, func(had decisions.Decision) bool { return had.ID == d.ID }); i >= 0 {
		last = repeated(r.last[i], last)
		r.last = slices.Delete(r.last, i, i+1)
	}
	if len(r.last) == denialsEach {
		r.last = slices.Delete(r.last, 0, 1)
	}
	r.last = append(r.last, last)
}

// repeated is what the row says that counts both: the newer one, since the older.
func repeated(had, d decisions.Decision) decisions.Decision {
	if d.Until.IsZero() {
		d.Until = d.Time
	}
	d.Time, d.Count = had.Time, max(had.Count, 1)+max(d.Count, 1)
	return d
}

// enter makes room for a sandbox, at the cost of the one that came first. The caller holds mu.
func (m *Denials) enter(key boxKey) *ring {
	if m.boxes == nil {
		m.boxes = make(map[boxKey]*ring)
	}
	if len(m.order) == denialsBoxes {
		delete(m.boxes, m.order[0])
		m.order = slices.Delete(m.order, 0, 1)
	}
	r := &ring{}
	m.boxes[key] = r
	m.order = append(m.order, key)
	return r
}

// Of returns the denials of an incarnation, newest first.
func (m *Denials) Of(sandbox string, incarnation uint64) []decisions.Decision {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.boxes[boxKey{sandbox, incarnation}]
	if r == nil {
		return []decisions.Decision{}
	}
	all := slices.Clone(r.last)
	slices.Reverse(all)
	return all
}

// Find returns one of them.
func (m *Denials) Find(sandbox string, incarnation uint64, id string) (decisions.Decision, bool) {
	for _, d := range m.Of(sandbox, incarnation) {
		if d.ID == id {
			return d, true
		}
	}
	return decisions.Decision{}, false
}

// Drop forgets a sandbox.
func (m *Denials) Drop(sandbox string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.order = slices.DeleteFunc(m.order, func(k boxKey) bool {
		if k.sandbox != sandbox {
			return false
		}
		delete(m.boxes, k)
		return true
	})
}
