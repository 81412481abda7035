package audit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Outcomes of an audited action.
const (
	Success = "success"
	Failure = "failure"
)

// An Entry is one line of the audit log.
type Entry struct {
	ID        string            `json:"id"` // aud_<uuidv7>
	Org       string            `json:"org_id"`
	Seq       int64             `json:"seq"` // 1, 2, 3 within the org, in commit order
	Time      time.Time         `json:"timestamp"`
	ActorKind string            `json:"actor_kind"`
	Actor     string            `json:"actor"`
	Action    Action            `json:"action"`
	Object    string            `json:"resource"`
	Outcome   string            `json:"outcome"`
	Address   string            `json:"address,omitempty"`
	RequestID string            `json:"request_id,omitempty"`
	Details   map[string]string `json:"details"`
	Prev      string            `json:"prev_hash"` // hex
	Hash      string            `json:"hash"`      // hex
}

// ErrBroken says that a chain does not hold.
var ErrBroken = errors.New("audit chain is broken")

// Genesis is the hash before the first entry of an org.
func Genesis(org string) string {
	sum := sha256.Sum256([]byte("portreeve audit v1\x00" + org))
	return hex.EncodeToString(sum[:])
}

// Sum computes the hash of e over everything but its own hash. Each field is written with its length before it.
func Sum(e Entry) string {
	h := sha256.New()
	var number [8]byte
	write := func(s string) {
		binary.BigEndian.PutUint64(number[:], uint64(len(s)))
		h.Write(number[:])
		h.Write([]byte(s))
	}
	integer := func(n int64) {
		binary.BigEndian.PutUint64(number[:], uint64(n))
		h.Write(number[:])
	}
	write(e.Prev)
	write(e.ID)
	write(e.Org)
	integer(e.Seq)
	integer(e.Time.UTC().UnixMicro())
	for _, s := range []string{e.ActorKind, e.Actor, string(e.Action), e.Object, e.Outcome, e.Address, e.RequestID} {
		write(s)
	}
	integer(int64(len(e.Details)))
	for _, k := range slices.Sorted(maps.Keys(e.Details)) {
		write(k)
		write(e.Details[k])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Verify checks a run of entries, oldest first, that follows the entry whose hash is prev.
func Verify(prev string, entries []Entry) error {
	for i, e := range entries {
		if i > 0 && e.Seq != entries[i-1].Seq+1 {
			return fmt.Errorf("%w: entry %d follows %d", ErrBroken, e.Seq, entries[i-1].Seq)
		}
		if e.Prev != prev {
			return fmt.Errorf("%w: entry %d does not follow the one before", ErrBroken, e.Seq)
		}
		if e.Hash != Sum(e) {
			return fmt.Errorf("%w: entry %d was changed", ErrBroken, e.Seq)
		}
		prev = e.Hash
	}
	return nil
}
