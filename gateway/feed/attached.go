package feed

import (
	"time"

	"portreeve.dev/egress"
)

// Attached says of a sandbox that somebody else runs it: it has no address, and comes in by a door until its end.
type Attached struct {
	Incarnation uint64    `json:"incarnation"`
	Ends        time.Time `json:"ends"`
}

// DoorKey signs the passwords with which the org's attached sandboxes come in. It travels like a secret's value.
type DoorKey struct {
	Version uint32 `json:"version"`
	Key     []byte `json:"key"`
}

// An Attachment is an attached sandbox as the edge binds it.
type Attachment struct {
	Binding egress.Binding
	Ends    time.Time
}

// attachment is that of a sandbox in the state, whose lowest revision is the state's own: it was entered with this one, or before.
func (s Sandbox) attachment() Attachment {
	return Attachment{egress.Binding{Sandbox: s.ID, Org: s.Org, Incarnation: s.Attached.Incarnation, Generation: 1}, s.Attached.Ends}
}

// Attached lists the attached sandboxes of the state in force, fresh or not.
func (h *Holder) Attached() []Attachment {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.now == nil {
		return nil
	}
	return h.now.attached
}

// DoorKeys returns the keys of an org, of the state in force.
func (h *Holder) DoorKeys(org string) []DoorKey {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.now == nil {
		return nil
	}
	return h.now.doorKeys[org]
}
