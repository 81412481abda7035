package decisions

import "bytes"

// A Shipment is a batch on its way from an edge to control, in order, with what the spool says about itself. It may have no rows.
type Shipment struct {
	Node  string              `json:"node"`
	Spool string              `json:"spool"` // which file the numbers belong to; empty if none can be opened
	Life  uint64              `json:"life"`  // which opening of it
	Run   string              `json:"run"`   // random, of this opening: an older copy of the file has another one in the same life
	Began uint64              `json:"began"` // rows before this one are of an earlier life: its flows are no more
	Rows  []Row               `json:"rows"`
	More  bool                `json:"more"` // rows wait behind these
	Orgs  map[string]OrgState `json:"orgs"`
	Error string              `json:"error,omitempty"` // why nothing is recorded: spool_unusable, spool_moved
}

// Join leaves out the body of each row whose decision is closed by a later one of the same shipment: of a short flow that says
// the same again, with its end.
func (s *Shipment) Join() {
	begun := make(map[string]int, len(s.Rows))
	for i, r := range s.Rows {
		id, ok := bodyID(r.Body)
		if !ok {
			continue
		}
		if !bytes.Contains(r.Body, []byte(closedText)) {
			begun[string(id)] = i
			continue
		}
		if at, ok := begun[string(id)]; ok && s.Rows[at].Org == r.Org {
			s.Rows[at].Body, s.Rows[at].With = nil, r.Seq
			delete(begun, string(id))
		}
	}
}

// bodyID reads the id off the beginning of a decision's text, where AppendJSON puts it.
func bodyID(body []byte) (id []byte, ok bool) {
	rest, ok := bytes.CutPrefix(body, []byte(`{"id":"`))
	if !ok {
		return nil, false
	}
	id, _, ok = bytes.Cut(rest, []byte(`"`))
	return id, ok && !bytes.ContainsRune(id, '\\')
}

// EdgeDied is the error of a flow whose edge died: how it ended, nobody knows.
const EdgeDied = "edge_died"

// An OrgState is what a spool says of one org.
type OrgState struct {
	Upto     uint64 `json:"upto"`     // every number up to here was sent with a row, now or before, or has none: it is lost
	Reserved uint64 `json:"reserved"` // no higher number has been drawn
	Written  uint64 `json:"written"`  // rows since the file was made
	Budget   uint64 `json:"budget"`   // of the lost ones: beyond a sandbox's budget
	Unsure   uint64 `json:"unsure"`   // of the missing ones: nobody knows whether they were drawn
	Bytes    int64  `json:"bytes"`    // held at the moment
}

// Acked is the answer: everything up to Seq is in the store.
type Acked struct {
	Seq uint64 `json:"seq"`
	// Skip has the number from which an org goes on: the spool is an older copy of one that went further.
	Skip map[string]uint64 `json:"skip,omitempty"`
}
