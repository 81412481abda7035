package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
)

// Bindings tells whose an address is. *egress.Bindings is one.
type Bindings interface {
	Lookup(netip.Addr) (egress.Binding, bool)
}

// ErrStalePolicy is what a PolicySource returns, wrapped or not, for a snapshot that is older than it may be.
var ErrStalePolicy = errors.New("stale policy")

// A PolicySource gives the snapshot in force for a sandbox. It is asked for each connection and each request, must not
// block, and is safe for concurrent use. Every error is a denial: ErrStalePolicy with that reason, others with no_policy.
type PolicySource interface {
	Snapshot(egress.Binding) (s *policies.Snapshot, revision uint64, err error)
}

// Names is the table of the addresses that sandboxes were given for names. Safe for concurrent use.
type Names interface {
	// InRange reports whether addr is of the synthetic range.
	InRange(addr netip.Addr) bool
	// Name returns the name, in normal form, that addr stands for in that incarnation of the sandbox.
	Name(sandbox string, incarnation uint64, addr netip.Addr) (name string, ok bool)
	// Pinned returns the names that this incarnation was lately given a real address for.
	Pinned(sandbox string, incarnation uint64, addr netip.Addr, now time.Time) []string
}

// A Recorder is where decisions are written. Safe for concurrent use.
type Recorder interface {
	// Record returns once the decision is durable enough to act on it. After an error nothing is dialled.
	Record(context.Context, *decisions.Decision) error
	// Close completes a recorded decision. It must not block for long; what it can't write it counts.
	Close(ctx context.Context, id string, end Closing)
}

// A Closing is how a flow or a request ended.
type Closing struct {
	Addr     netip.Addr // that was dialled; invalid if none was
	Status   int        // of the upstream's answer; 0 if none came or none was seen
	BytesIn  int64      // upstream to sandbox
	BytesOut int64      // sandbox to upstream
	Duration time.Duration
	Error    string // kind of failure: a word from a closed list, or a reason; empty when all went well
}

// A Target is what is dialled: exactly what the verdict was about, never what a request says.
type Target struct {
	Org  string
	Host string     // in normal form; empty for a target by address
	Addr netip.Addr // when Host is empty
	Port uint16
	Pin  netip.Addr // beside Host: the only address to try, which still has to be judged
	// Named is the verdict's: only then may an exemption of the floor be used.
	Named bool
	// Address is asked about each address before it is used, Alias about each name that Host is an alias of.
	Address func(netip.Addr) policies.Verdict
	Alias   func(name string) policies.Verdict
}

// A Dialer resolves, classifies and connects, under the floor. A denial is a *RefusedError, every other failure best a
// *DialError. It returns the address that the connection goes to.
type Dialer interface {
	Dial(context.Context, Target) (net.Conn, netip.Addr, error)
}

// A RefusedError is a denial by the floor, by a rule on the address that a name has, or, with reason budget, for want of descriptors.
type RefusedError struct {
	Verdict policies.Verdict
	Addr    netip.Addr // what was refused; invalid if a name was
}

func (e *RefusedError) Error() string { return "dialing: refused: " + e.Verdict.Reason.String() }

// A DialError says in one word why there is no connection, and whether that is for want of an address, or the company's proxy didn't
// make it.
type DialError struct {
	Kind      string
	Resolving bool
	OfProxy   bool
	Err       error
}

func (e *DialError) Error() string { return "dialing: " + e.Kind }

func (e *DialError) Unwrap() error { return e.Err }

// A Flow is one live use of a verdict: an accepted connection, or (with a Parent) a relay or a request on one.
type Flow struct {
	ID      string
	Parent  string // flow of the connection; empty for a connection itself, and only those count against a sandbox's cap
	Binding egress.Binding
	Request policies.Request // what to judge again when the policy changes
	Remote  netip.AddrPort   // the address dialled, once it is known
	Opaque  bool             // its bytes pass unseen: it ends, too, when they have to be seen
	Claim   string           // server name, in normal form, of one by address: a rule may come to deny it, a secret be granted to it
	// Upstream marks a kept connection to an upstream. Requests are served on it, each judged for itself; it may outlive its Parent.
	Upstream bool
	Secrets  []decisions.Use       // that it carries: it ends when one is no longer granted to the request's host
	Local    bool                  // ends here (portreeve.internal): it counts, but no policy is asked about it
	Live     *egress.Live          // what is known of it while it lives; that of its Parent if it is all of it
	Kill     func(policies.Reason) // doesn't wait; it may call the flow's remove, so the table must hold no lock
}

// A FlowTable holds the live flows, caps them per sandbox and kills those that a tightened policy no longer allows.
// A flow is added before it is judged, so that no policy change falls between the two. The error is best a *LimitError.
// Safe for concurrent use.
type FlowTable interface {
	Add(Flow) (remove func(), err error)
}

// Certificates gives the leaf for a host under the org's CA. Safe for concurrent use; caching is its own.
type Certificates interface {
	Leaf(ctx context.Context, org, host string) (*tls.Certificate, error)
}

// An Injector puts granted secrets into requests. Safe for concurrent use.
type Injector interface {
	// Granted reports whether some grant of this sandbox names the host, on whatever port. There, no credential of the sandbox's
	// own passes: what can't be opened is refused.
	Granted(b egress.Binding, host string) bool
	// Apply changes the request on its way out, after every verdict on it and without the sandbox's own credentials, or fails:
	// then the request is not sent.
	// It must fail, too, while the policy is not fresh.
	Apply(ctx context.Context, b egress.Binding, to Place, r *http.Request) (Injection, error)
	// Current reports whether the secret is still granted to the host, and still in the version that was used.
	Current(b egress.Binding, host string, port uint16, u decisions.Use) bool
}

// A Place is where a request goes.
type Place struct {
	Host     string
	Port     uint16
	Path     string // in the form that was judged and is sent
	Withhold bool   // set no secret: the request goes over plain HTTP, or under a policy that only watches
}

// Timeouts bound the waiting. Zero means the default.
type Timeouts struct {
	Hello         time.Duration // from accept to the first bytes and a whole ClientHello, then for the handshake; 10 s
	Head          time.Duration // from the first byte of a request head to its last; 10 s
	FirstBytes    time.Duration // wait for the client where the server may speak first as well as not; 1 s
	Dial          time.Duration // 15 s
	Response      time.Duration // from the request's last byte to the answer's head; 5 min
	HalfClosed    time.Duration // for an answer, after an HTTP/1 client has shut its side; then it counts as gone; 5 s
	Idle          time.Duration // without a byte in either direction; 5 min
	WebSocketIdle time.Duration // the same once a connection is a WebSocket; 1 h
}

// Limits bound what is held. Zero means the default.
type Limits struct {
	Upstreams      int   // pools of upstream connections of one org, the least recently used is closed first; 1024
	IdlePerPool    int   // idle connections in each; 16
	Streams        int   // HTTP/2 streams per connection; 100
	ResponseHeader int64 // bytes of an upstream's answer head; 256 KiB
}

// Config is what a Proxy needs. Bindings, Policies, Floor, Names, Recorder, Dialer and Flows must be set.
type Config struct {
	Bindings Bindings
	Policies PolicySource
	Floor    func() *policies.Floor // the current one, asked after Policies; nil from it denies everything as stale
	Names    Names
	Recorder Recorder
	Dialer   Dialer
	Flows    FlowTable

	// NameBudget bounds the names that sandboxes at doors make up below a wildcard: each is looked up before it is dialled. It returns
	// what is over the budget, as *.name, unless the host is within it. What came over the wire was charged when it was asked for.
	// Nil bounds nothing.
	NameBudget func(b egress.Binding, host string) (over string, ok bool)

	// Meters count and slow what connections move; nil does neither.
	Meters Meters
	// Certificates open TLS where a rule says so; nil refuses those connections.
	Certificates Certificates
	// UpstreamRoots verify upstreams of opened connections; nil means the system's.
	UpstreamRoots *x509.CertPool
	// Injector may be nil: nothing is injected.
	Injector Injector

	// HashKey gives the key under which the sandbox's own credentials are hashed for the record. Nil, or a nil key: only their
	// places are recorded.
	HashKey func(egress.Binding) []byte

	// Self answers http://portreeve.internal at SelfAddr. Nil, or an invalid address: there is no such place.
	Self     http.Handler
	SelfAddr netip.Addr

	// AllowOuterECH passes an encrypted ClientHello on to every server. Browsers send one that means nothing (GREASE), which nobody
	// can tell from a real one; a real one reaches any name of the same provider. Default false: passed on to servers that read
	// none, which are asked, and refused with reason ech to others. On passed connections only: an opened one ignores the extension.
	AllowOuterECH bool

	Timeouts Timeouts
	Limits   Limits
	Log      *slog.Logger     // default: discards
	Now      func() time.Time // default: time.Now
}

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Bindings == nil, c.Policies == nil, c.Floor == nil, c.Names == nil, c.Recorder == nil, c.Dialer == nil, c.Flows == nil:
		return c, errors.New("proxy: bindings, policies, floor, names, recorder, dialer and flows are all needed")
	case c.Self != nil && !c.SelfAddr.IsValid():
		return c, errors.New("proxy: a handler for portreeve.internal without its address")
	}
	for _, d := range []struct {
		v    *time.Duration
		then time.Duration
	}{
		{&c.Timeouts.Hello, 10 * time.Second},
		{&c.Timeouts.Head, 10 * time.Second},
		{&c.Timeouts.FirstBytes, time.Second},
		{&c.Timeouts.Dial, 15 * time.Second},
		{&c.Timeouts.Response, 5 * time.Minute},
		{&c.Timeouts.HalfClosed, 5 * time.Second},
		{&c.Timeouts.Idle, 5 * time.Minute},
		{&c.Timeouts.WebSocketIdle, time.Hour},
	} {
		if *d.v == 0 {
			*d.v = d.then
		}
		if *d.v < 0 {
			return c, errors.New("proxy: a timeout below zero")
		}
	}
	orDefault(&c.Limits.Upstreams, 1024)
	orDefault(&c.Limits.IdlePerPool, 16)
	orDefault(&c.Limits.Streams, 100)
	if c.Limits.ResponseHeader <= 0 {
		c.Limits.ResponseHeader = 256 << 10
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c, nil
}

func orDefault(v *int, then int) {
	if *v <= 0 {
		*v = then
	}
}
