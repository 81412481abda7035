package route

import (
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"portreeve.dev/policies/hostname"
)

// A State is what a call finds. The zero value is the end.
type State uint8

const (
	Gone    State = iota // expired or deleted
	Running              // can be dialled
	Paused               // has to be woken first, however deep it sleeps
)

var states = [...]string{Gone: "gone", Running: "running", Paused: "paused"}

func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return "gone"
}

// MarshalText and UnmarshalText write states as words.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *State) UnmarshalText(text []byte) error {
	for i, name := range states {
		if name == string(text) {
			*s = State(i)
			return nil
		}
	}
	return errors.New("not a state of a tunnel")
}

// A Hash is SHA-256 of a tunnel's token. The zero Hash is no token's.
type Hash [32]byte

func (h Hash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h[:])), nil }

func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != 2*len(h) {
		return errors.New("not a SHA-256 in hexadecimal")
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// A Record is everything that ingress knows of one tunnel. A record in a Table never changes.
type Record struct {
	Host       string    `json:"host"` // in normal form
	Tunnel     string    `json:"tunnel"`
	Sandbox    string    `json:"sandbox"`
	Org        string    `json:"org"`
	Port       uint16    `json:"port"`       // in the sandbox
	Generation uint64    `json:"generation"` // of the sandbox
	State      State     `json:"state"`
	Public     bool      `json:"public"`
	KeepHost   bool      `json:"keep_host"`  // the app sees the public name as Host, not localhost
	TokenHash  Hash      `json:"token_hash"` // of a tunnel that isn't public
	AuthEpoch  uint64    `json:"auth_epoch"` // raising it revokes what was admitted before
	ExpiresAt  time.Time `json:"expires_at"`
	// AnonymousWakes is how often a minute callers without a credential may wake sandboxes of the org; 0 is never.
	AnonymousWakes int `json:"anonymous_wakes_per_minute"`
}

// Validate reports the first thing that is missing from a record.
func (r *Record) Validate() error {
	normal, err := hostname.Normalize(r.Host)
	switch {
	case err != nil || normal != r.Host:
		return fmt.Errorf("route of tunnel %q: host %q is not in normal form", r.Tunnel, r.Host)
	case r.Tunnel == "" || r.Sandbox == "" || r.Org == "":
		return fmt.Errorf("route %q: tunnel, sandbox and org must be named", r.Host)
	case r.Port == 0:
		return fmt.Errorf("route %q: no port", r.Host)
	case int(r.State) >= len(states):
		return fmt.Errorf("route %q: unknown state %d", r.Host, r.State)
	case r.State == Running && r.Generation == 0:
		return fmt.Errorf("route %q: running without a generation", r.Host)
	case r.ExpiresAt.IsZero():
		return fmt.Errorf("route %q: no end", r.Host)
	case !r.Public && r.TokenHash == Hash{} && r.State != Gone:
		return fmt.Errorf("route %q: neither public nor with a token", r.Host)
	}
	return nil
}

// gone returns a copy of r that is at its end.
func (r *Record) gone() *Record {
	c := *r
	c.State, c.TokenHash = Gone, Hash{}
	return &c
}
