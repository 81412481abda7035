package policies

import (
	"cmp"
	"errors"
	"net/netip"
	"time"

	"portreeve.dev/policies/pathmatch"
)

// A Request is what a verdict is asked about.
type Request struct {
	Stage Stage
	// Host is the name, as hostname.Normalize returns it; empty for a connection by address.
	Host string
	// Addr is the address, when Host is empty. Beside a Host it is the address about to be dialled for it:
	// then only deny rules look at it, so that a forbidden range stays forbidden under every name.
	Addr netip.Addr
	Port uint16
	// Protocol is one protocol, or zero at StageConnect while it is not known yet.
	Protocol Protocol
	Method   string // StageRequest only, as sent
	Path     string // StageRequest only, as pathmatch.Canonical returns it
	// Now is the time of the request. The zero time counts as after every end of an allow and before every end of a deny.
	Now time.Time
}

// ErrNoInside: a method or a path of what is neither https nor http.
var ErrNoInside = errors.New("only https and http have methods and paths")

// Ask makes r the question about one HTTP request on its connection, for who asks without a connection: the method is GET if empty, the
// path, which it brings into canonical form, the root. The error is ErrNoInside or pathmatch.ErrAmbiguous; then r stays as it was.
func (r *Request) Ask(method, path string) error {
	if r.Protocol != HTTPS && r.Protocol != HTTP {
		return ErrNoInside
	}
	canonical, err := pathmatch.Canonical(cmp.Or(path, "/"))
	if err != nil {
		return err
	}
	r.Stage, r.Method, r.Path = StageRequest, cmp.Or(method, "GET"), canonical
	return nil
}

// A Verdict is the answer. Its zero value is a denial.
type Verdict struct {
	Action Action `json:"action"`
	// Reason is why; if Observed, why it would have been denied.
	Reason Reason `json:"reason"`
	Rule   string `json:"rule,omitempty"`  // id of the rule that decided
	Layer  string `json:"layer,omitempty"` // name of its layer, or "floor"
	// Version is the version of that layer.
	Version int64 `json:"version"`
	// Protocols is what every layer allows for this host and port: all of it while the request's protocol is unknown,
	// else that one. Ask again once the protocol is known. Empty at StageName and in a denial.
	Protocols Protocol           `json:"protocols"`
	TLS       TLSMode            `json:"tls"`
	Foreign   ForeignCredentials `json:"foreign_credentials"`
	DNS       DNSMode            `json:"dns"`
	Log       LogMode            `json:"log"`
	Message   string             `json:"message,omitempty"` // the deny rule's own words
	// Requestable: access may be asked for, as the function of that name says.
	Requestable bool `json:"requestable"`
	// Observed: a layer would have denied, but only watches (observe_until). Never inject a secret for such a request.
	Observed bool `json:"observed"`
	// DoH: questions to other resolvers may pass, where the inside is seen.
	DoH bool `json:"-"`
	// Named: in every layer the rule that allowed names the host or the address, not just everything.
	// Only then may an exemption of the floor be used.
	Named bool `json:"named"`
	// Inside: the verdict rests on the method or the path, or at an earlier stage will. What names another method or path
	// beside the request line (OverrideHeader, OverrideQuery) must then not reach the server. It is false in a denial.
	Inside bool `json:"inside"`
}

// Allowed reports whether the verdict lets the request pass.
func (v Verdict) Allowed() bool { return v.Action == Allow }

// Guidance is what the refused agent is told: the rule's own words, or the reason's.
func (v Verdict) Guidance() string {
	if v.Message != "" {
		return v.Message
	}
	return v.Reason.Guidance()
}

// Denied returns a denial for that reason, for callers that deny before or after the policy is asked.
func Denied(reason Reason) Verdict { return Verdict{Reason: reason} }
