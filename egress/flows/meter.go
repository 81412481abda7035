package flows

import (
	"context"

	"portreeve.dev/egress"
)

// A Meter counts what one connection moves, for its org's quota, and holds it to the bandwidth of its sandbox and org. Safe for
// concurrent use. Waiting costs no goroutine, only the caller's.
type Meter struct {
	t   *Table
	box *box
	org *org
}

// Meter gives a connection its meter.
func (t *Table) Meter(b egress.Binding) *Meter {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.org(b.Org)
	box := o.box(b.Sandbox, t.cfg.Now())
	box.last = t.cfg.Now()
	return &Meter{t, box, o}
}

// In counts n bytes that moved to the sandbox, and returns when more may move or ctx ends.
func (m *Meter) In(ctx context.Context, n int) {
	m.org.usage.in.Add(int64(n))
	m.spent()
	m.box.in.wait(ctx, n)
	m.org.in.wait(ctx, n)
}

// Out is In for bytes that moved from the sandbox.
func (m *Meter) Out(ctx context.Context, n int) {
	m.org.usage.out.Add(int64(n))
	m.spent()
	m.box.out.wait(ctx, n)
	m.org.out.wait(ctx, n)
}

// spent has Run end the org's flows when this was the last of its quota.
func (m *Meter) spent() {
	if !m.org.usage.over() {
		return
	}
	select {
	case m.t.over <- struct{}{}:
	default:
	}
}

// leastChunk is what a copy in the kernel moves at once at the end of a quota.
const leastChunk = 16 << 10

// Chunk is how many bytes, of most, may move at once without In and Out knowing of it.
func (m *Meter) Chunk(most int64) int64 {
	for _, b := range []*bucket{&m.box.in, &m.box.out, &m.org.in, &m.org.out} {
		most = b.chunk(most)
	}
	if left := m.org.usage.left.Load(); left-most*16 < m.org.usage.sum() { // others copy at the same time
		most = min(most, max((left-m.org.usage.sum())/16, leastChunk))
	}
	return most
}

// pipes is how many descriptors a copy in the kernel holds, one way.
const pipes = 2

// Pipes takes the descriptors of a copy in the kernel out of the org's share, until done is called.
func (m *Meter) Pipes() (done func(), ok bool) {
	if !m.t.TakeDescriptors(m.org.id, pipes) {
		return nil, false
	}
	return func() { m.t.GiveDescriptors(m.org.id, pipes) }, true
}

// TakeDescriptors takes n of an org's share of the process's descriptors, or nothing and says no.
func (t *Table) TakeDescriptors(org string, n int) bool {
	return t.cfg.Descriptors == nil || t.cfg.Descriptors.Take(org, n)
}

// GiveDescriptors gives back what TakeDescriptors took.
func (t *Table) GiveDescriptors(org string, n int) {
	if t.cfg.Descriptors != nil {
		t.cfg.Descriptors.Give(org, n)
	}
}
