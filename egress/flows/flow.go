package flows

import (
	"net/netip"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// A Flow is one live use of a verdict: a connection of a sandbox, or one relay or request within it.
type Flow struct {
	ID      string // flo_<uuidv7>
	Within  string // id of the connection's flow, if this is a part of it; only connections count against the caps
	Binding egress.Binding
	Request policies.Request // what is judged, at its stage
	Opaque  bool             // its bytes pass unseen
	Claim   string           // server name that one by address claims, in normal form: ended when a rule denies it, or it must be seen
	Local   bool             // ends at portreeve.internal: it counts, but neither policy nor floor is asked about it
	// Upstream marks a kept connection to an upstream, on which requests are served; it may outlive what it is Within.
	Upstream bool
	Carries  []Carried      // secrets that go over it: it ends when one is no longer granted
	Remote   netip.AddrPort // the address dialled, once it is: floor and rules by address judge it again
	Live     *egress.Live   // kept by its owner, for who lists flows; a part that is all of its connection has the connection's

	// Kill ends the connection, for example by closing both sockets. It is called at most once, from another goroutine than the
	// one that added the flow, and must not block for long; that goroutine then calls remove.
	Kill func(policies.Reason)
}

// isRequest reports whether the flow is one request on a connection.
func (f *Flow) isRequest() bool {
	return f.Within != "" && !f.Upstream && f.Request.Stage == policies.StageRequest
}

// A Carried is a secret that was put into a flow.
type Carried struct {
	Secret  string // id
	Version int64
}
