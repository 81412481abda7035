package flows

import (
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// A sitting judges flows by what its sources answered when they were first asked. Each question may read the kernel's clock, to see
// whether the answer is still fresh; for thousands of flows that would cost more than all the rest.
type sitting struct {
	cfg *Config
	now time.Time

	under     *policies.Floor
	asked     bool // for the floor
	snapshots map[egress.Binding]standing
	seen      map[toHost]bool
	held      map[carriedTo]bool
}

// A standing is what a sandbox is judged by.
type standing struct {
	snapshot *policies.Snapshot
	revision uint64
	err      error
}

type toHost struct {
	binding egress.Binding
	host    string
}

type carriedTo struct {
	to      toHost
	port    uint16
	carried Carried
}

// sit begins a sitting for any number of flows.
func (t *Table) sit() *sitting {
	return &sitting{cfg: &t.cfg, now: t.cfg.Now(), snapshots: make(map[egress.Binding]standing), seen: make(map[toHost]bool), held: make(map[carriedTo]bool)}
}

// judge is a sitting for one flow, which has nothing to remember.
func (t *Table) judge(f *Flow) policies.Verdict {
	return (&sitting{cfg: &t.cfg, now: t.cfg.Now()}).judge(f)
}

// snapshot returns what b is judged by.
func (s *sitting) snapshot(b egress.Binding) (*policies.Snapshot, uint64, error) {
	st := remember(s.snapshots, b, func() (st standing) {
		st.snapshot, st.revision, st.err = s.cfg.Policies.Snapshot(b)
		return st
	})
	return st.snapshot, st.revision, st.err
}

// floor returns the floor. It is asked for behind a snapshot: then there is one for as long as any sandbox may go on.
func (s *sitting) floor() *policies.Floor {
	if !s.asked {
		s.under, s.asked = s.cfg.Floor(), true
	}
	return s.under
}

// remember answers from memory, else asks and remembers. A nil memory stays empty.
func remember[K comparable, V any](memory map[K]V, key K, ask func() V) V {
	if v, ok := memory[key]; ok {
		return v
	}
	v := ask()
	if memory != nil {
		memory[key] = v
	}
	return v
}
