package sso

import (
	"slices"
	"strings"
)

// A Kind says what sort of caller a principal is.
type Kind string

const (
	KindKey    Kind = "key"    // an API key
	KindSetup  Kind = "setup"  // the one-time token of the start screen, registering an org
	KindSystem Kind = "system" // a part of ours: the node reporting an end, a restart reconciling
	// KindSandbox is a sandbox that asks for something about itself, by the one address of ours that it reaches. It holds no scope.
	KindSandbox Kind = "sandbox"
)

// A Scope is one thing that a key may do. Scopes imply nothing of each other.
type Scope string

const (
	ScopeRead   Scope = "read"   // see sandboxes, decisions and policies
	ScopeWrite  Scope = "write"  // make, use and end sandboxes
	ScopeAdmin  Scope = "admin"  // change policies, settings and keys; read the audit log
	ScopeGrants Scope = "grants" // say where secrets may go
	// ScopeApprove is to decide what sandboxes ask for: no more than that, for at most a day, and never against a deny rule.
	ScopeApprove Scope = "approve"
	// ScopePlatform is to change what holds for every org, as the floor does. It is no org's to give: the installer's key has it, and
	// those that are made with that one.
	ScopePlatform Scope = "platform"
)

// Scopes lists what an org's owner may do: everything within the org.
func Scopes() []Scope { return []Scope{ScopeRead, ScopeWrite, ScopeAdmin, ScopeGrants, ScopeApprove} }

// AllScopes lists every scope there is: an owner's, and the platform's.
func AllScopes() []Scope { return append(Scopes(), ScopePlatform) }

// ParseScope returns the scope of that name.
func ParseScope(name string) (Scope, bool) {
	s := Scope(name)
	return s, slices.Contains(AllScopes(), s)
}

// AnyPolicy in a principal's policies stands for each policy of the org.
const AnyPolicy = "*"

// A Principal is who is asking. The zero value is nobody.
type Principal struct {
	Kind     Kind
	ID       string // key_..., or the name of the part for KindSystem
	Org      string // org_...
	Scopes   []Scope
	Policies []string // named policies that it may give to a sandbox; AnyPolicy for all
}

// Valid reports whether this is somebody, of some org.
func (p Principal) Valid() bool {
	switch p.Kind {
	case KindKey, KindSetup, KindSystem, KindSandbox:
		return p.ID != "" && p.Org != ""
	default:
		return false
	}
}

// Has reports whether the principal holds the scope. A sandbox holds none, whatever it was given.
func (p Principal) Has(s Scope) bool {
	return p.Valid() && p.Kind != KindSandbox && s != "" && slices.Contains(p.Scopes, s)
}

// MayGive reports whether the principal may give the named policy to a sandbox.
func (p Principal) MayGive(policy string) bool {
	return p.Valid() && policy != "" && (slices.Contains(p.Policies, policy) || slices.Contains(p.Policies, AnyPolicy))
}

// String names the principal for a log line: kind:id.
func (p Principal) String() string {
	if !p.Valid() {
		return "nobody"
	}
	return strings.Join([]string{string(p.Kind), p.ID}, ":")
}

// Sandbox returns the principal of a sandbox that asks about itself.
func Sandbox(id, org string) Principal {
	return Principal{Kind: KindSandbox, ID: id, Org: org}
}

// System returns the principal of a part of ours acting within org.
func System(part, org string) Principal {
	return Principal{Kind: KindSystem, ID: part, Org: org}
}
