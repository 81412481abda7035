package feed

import (
	"encoding/json"
	"net/netip"
	"time"

	"portreeve.dev/ingress/route"
	"portreeve.dev/secrets"
)

// Times of the feed. An edge whose control is silent for FreshFor refuses; control speaks every Beat.
const (
	FreshFor = 10 * time.Second
	Beat     = 2 * time.Second
)

// Methods of the two feeds, and the notice between their states.
const (
	Policies = "policies" // State -> Applied, at an edge
	Routes   = "routes"   // RouteState -> Applied, at an ingress
	Beats    = "heartbeat"
)

// RouteState is every tunnel that an ingress must know, at one revision.
type RouteState struct {
	Revision uint64         `json:"revision"`
	Records  []route.Record `json:"records"`
}

// State is everything an edge must know of policy, at one revision.
type State struct {
	Revision  uint64      `json:"revision"`
	Orgs      []Org       `json:"orgs"`
	Sandboxes []Sandbox   `json:"sandboxes"`
	Exempt    []Exemption `json:"exempt"`
}

// Org is the ceiling and the named policies of one org.
type Org struct {
	ID       string       `json:"id"`
	Ceiling  Policy       `json:"ceiling"`
	Policies []Policy     `json:"policies"`
	Secrets  []Secret     `json:"secrets,omitempty"`
	Records  Records      `json:"records,omitzero"`
	Limits   Limits       `json:"limits,omitzero"`
	Direct   bool         `json:"direct,omitempty"`  // it goes out without the company's proxy
	Sources  []netip.Addr `json:"sources,omitempty"` // where its connections leave from; none: the machine chooses

	DoorKeys []DoorKey `json:"door_keys,omitempty"`

	Authority string `json:"authority,omitempty"` // another one once no intermediate that was got before may sign
}

// Secret is a granted value on its way to the edge. It travels over a socket between two processes of ours and is in no file.
// Without a value, control could not open it: where a grant fits, nothing goes out.
type Secret struct {
	ID      string          `json:"id"`
	Version int64           `json:"version"`
	Value   []byte          `json:"value,omitempty"`
	Grants  []secrets.Grant `json:"grants"`
}

// Policy is a document in the policy language, at a version. A nil Document denies everything.
type Policy struct {
	Name     string          `json:"name,omitempty"` // empty for the ceiling
	Version  int64           `json:"version"`
	Document json.RawMessage `json:"document,omitempty"`
}

// Sandbox says under which policy a sandbox stands; an empty Policy is the ceiling itself.
type Sandbox struct {
	ID     string          `json:"id"`
	Org    string          `json:"org"`
	Policy string          `json:"policy,omitempty"`
	Own    json.RawMessage `json:"own,omitempty"` // a list that only narrows
	// OwnVersion is that list's, and stands in the decisions that it makes.
	OwnVersion int64 `json:"own_version,omitempty"`

	Attached *Attached `json:"attached,omitempty"` // nil: a node of ours runs it
}

// Exemption opens part of the soft floor, as the platform admin set it.
type Exemption struct {
	CIDR  string   `json:"cidr"`
	Ports []uint16 `json:"ports,omitempty"` // none: every port
	Orgs  []string `json:"orgs,omitempty"`  // ids; "*" is every org

	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero: never
}

// Heartbeat says that control is alive and which revision is the newest.
type Heartbeat struct {
	Revision uint64 `json:"revision"`
}

// Applied acknowledges a state.
type Applied struct {
	Revision uint64   `json:"revision"`
	Closed   []Closed `json:"closed,omitempty"` // what of it can't be used
}

// Closed is a part of a state that an edge can't use: it is closed there, and the rest is in force.
type Closed struct {
	Org     string `json:"org,omitempty"`
	Sandbox string `json:"sandbox,omitempty"` // empty: the whole org, unless a secret is named
	Secret  string `json:"secret,omitempty"`
	Reason  string `json:"reason"` // for the log; it holds no value
}
