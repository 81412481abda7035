package inbound

import (
	"fmt"
	"slices"
	"time"
)

// A Mode is how callers of a tunnel show that they may.
type Mode string

const (
	Token  Mode = "token"  // by the tunnel's token
	Public Mode = "public" // not at all
)

// Bounds of a Policy.
const (
	MaxLifetime       = 24 * time.Hour // of any tunnel
	MaxPorts          = 64             // ranges
	MaxAnonymousWakes = 6000           // a minute
)

// A Policy is what an org allows. Its zero value allows nothing.
type Policy struct {
	Modes            []Mode  `json:"modes" enum:"token,public" nullable:"false" maxItems:"2" doc:"How callers of a tunnel may show that they may: by its token, or public: not at all. None: no tunnels."`
	Ports            []Ports `json:"ports" nullable:"false" maxItems:"64" doc:"Which ports of a sandbox may have a tunnel: 3000, or 8000-8099."`
	MaxExpiresIn     int64   `json:"max_expires_in" minimum:"1" maximum:"86400" doc:"Seconds that a tunnel may live."`
	PublicWithGrants bool    `json:"public_with_grants" doc:"A sandbox to which a grant of a secret applies may have a public tunnel: anybody could use the secret through it."`
	AnonymousWakes   int     `json:"anonymous_wakes_per_minute" minimum:"0" maximum:"6000" doc:"How often callers of public tunnels may wake paused sandboxes of the org, all together; so many at once, too. 0: never."`
}

// Default is the policy of an org that set none: tunnels of both kinds, on every port, for a day, and none that is public where a
// secret is granted.
func Default() Policy {
	return Policy{Modes: []Mode{Token, Public}, Ports: []Ports{"1-65535"}, MaxExpiresIn: int64(MaxLifetime / time.Second), AnonymousWakes: 60}
}

// Lifetime is how long a tunnel may live.
func (p Policy) Lifetime() time.Duration { return time.Duration(p.MaxExpiresIn) * time.Second }

// Check reports the first thing that is wrong with the policy itself, by the field.
func (p Policy) Check() (field, message string) {
	for i, m := range p.Modes {
		if m != Token && m != Public {
			return fmt.Sprintf("modes[%d]", i), "is token or public"
		}
	}
	switch {
	case len(p.Ports) > MaxPorts:
		return "ports", fmt.Sprintf("has at most %d ranges", MaxPorts)
	case p.MaxExpiresIn < 1 || p.Lifetime() > MaxLifetime:
		return "max_expires_in", "is between 1 and 86400 seconds"
	case p.AnonymousWakes < 0 || p.AnonymousWakes > MaxAnonymousWakes:
		return "anonymous_wakes_per_minute", fmt.Sprintf("is between 0 and %d", MaxAnonymousWakes)
	}
	for i, of := range p.Ports {
		if _, _, ok := of.ends(); !ok {
			return fmt.Sprintf("ports[%d]", i), "is a port between 1 and 65535, or a range like 8000-8099"
		}
	}
	return "", ""
}

// A Request is a tunnel that somebody wants, or that there is.
type Request struct {
	Public   bool
	Port     uint16
	Lifetime time.Duration
	Granted  bool // a grant of a secret applies to its sandbox
}

func (r Request) mode() Mode {
	if r.Public {
		return Public
	}
	return Token
}

// A Reason is why a tunnel is allowed or refused: one of a closed list. The zero value refuses.
type Reason string

const (
	ReasonAllowed  Reason = "allowed"
	ReasonMode     Reason = "mode"     // tunnels of that kind are not
	ReasonPort     Reason = "port"     // that port may have none
	ReasonLifetime Reason = "lifetime" // it would live too long
	ReasonGrant    Reason = "grant"    // public, where a secret is granted
)

// A Verdict is what Evaluate says.
type Verdict struct {
	Reason  Reason
	Field   string // of a request to open it: public, port, expires_in
	Message string // why, and the way out
}

// Allowed reports whether the tunnel may be.
func (v Verdict) Allowed() bool { return v.Reason == ReasonAllowed }

// Evaluate says whether the policy allows a tunnel.
func (p Policy) Evaluate(r Request) Verdict {
	switch {
	case !slices.Contains(p.Modes, r.mode()):
		return Verdict{ReasonMode, "public", p.otherMode(r)}
	case !slices.ContainsFunc(p.Ports, func(of Ports) bool { return of.Has(r.Port) }):
		return Verdict{ReasonPort, "port", fmt.Sprintf("the org's ingress policy has no tunnels for port %d", r.Port)}
	case r.Lifetime > p.Lifetime():
		return Verdict{ReasonLifetime, "expires_in", fmt.Sprintf("the org's ingress policy lets a tunnel live for %d seconds", p.MaxExpiresIn)}
	case r.Public && r.Granted && !p.PublicWithGrants:
		return Verdict{ReasonGrant, "public", "is not possible while a secret is granted to the sandbox: anybody could use the secret through the tunnel"}
	}
	return Verdict{Reason: ReasonAllowed}
}

// otherMode says what to ask for instead.
func (p Policy) otherMode(r Request) string {
	switch {
	case len(p.Modes) == 0:
		return "the org's ingress policy allows no tunnels"
	case r.Public:
		return "the org's ingress policy allows no public tunnels; leave public out, and callers show a token"
	}
	return "the org's ingress policy allows public tunnels only"
}
