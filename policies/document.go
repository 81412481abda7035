package policies

import (
	"fmt"
	"net/netip"
	"time"
)

// Limits of a document. Its normal form has to keep them too.
const (
	MaxBytes    = 4 << 20 // of a document, as given and in normal form
	MaxRules    = 10_000
	MaxTargets  = 256 // hosts, or CIDRs, of a rule
	MaxPorts    = 64
	MaxMethods  = 32
	MaxPaths    = 64
	MaxMessage  = 500 // bytes
	MaxStaleCap = 15 * time.Minute

	defaultMaxStale = 5 * time.Minute
)

// A Document is one policy: a set of rules, and how long and how strictly it holds. The order of the rules means nothing.
// Parse returns it in normal form: names normalized, every default written out. Don't change it afterwards.
type Document struct {
	Rules []Rule
	// ObserveUntil is the end of a time in which the document's rules only watch. Zero: they hold now.
	ObserveUntil time.Time
	FailureMode  FailureMode
	// MaxStale is how long FailLastKnown goes on under the last snapshot.
	MaxStale time.Duration
	// DoH says whether ways to ask other resolvers are open: known ones by name, and what looks like such a question. The first
	// layer's word opens them, and any other's closes them again.
	DoH DoHMode
	// Tests are what the author expects of the rules. No verdict looks at them.
	Tests []Test
}

// A Rule says yes or no to some destinations. Exactly one of Hosts, Any and CIDRs is given.
type Rule struct {
	ID     string
	Action Action
	Hosts  []string       // exact, or "*.x" for every name below x, never x itself
	Any    bool           // every host by name; addresses need CIDRs
	CIDRs  []netip.Prefix // connections by address; a deny rule also looks at the address that a name leads to
	// Ports is, if nil, the protocols' own ports in an allow rule for hosts, and every port in a deny rule.
	Ports []PortRange
	// Protocols is, if zero, https in an allow rule, everything in a deny rule, and https and http in a deny rule with methods or paths.
	Protocols Protocol
	TLS       TLSMode
	Methods   []string // nil: every method
	Paths     []string // nil: every path; else patterns of pathmatch
	// The next three are opinions: nil has none. The strictest opinion of all layers holds, and without any the strictest value.
	ForeignCredentials *ForeignCredentials
	DNS                *DNSMode
	Log                *LogMode
	ExpiresAt          time.Time // zero: never
	Disabled           bool      // "enabled": false
	Message            string    // told to whoever a deny rule refuses
	Shared             bool      // the author knows that strangers own names under this wildcard
}

// A PortRange is the ports from First to Last, both included. In a document it is a number, or "first-last".
type PortRange struct{ First, Last uint16 }

// EveryPort is the range of all ports.
var EveryPort = PortRange{1, 65535}

// Port returns the range that holds only p.
func Port(p uint16) PortRange { return PortRange{p, p} }

// Has reports whether p is in the range.
func (r PortRange) Has(p uint16) bool { return r.First <= p && p <= r.Last }

func (r PortRange) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// seesInside reports whether some connection under the rule shows its HTTP requests.
func (r *Rule) seesInside() bool {
	return r.Protocols&HTTP != 0 || r.Protocols&HTTPS != 0 && r.TLS == Inspect
}

// needsInside reports whether only the HTTP request can tell whether the rule matches.
func (r *Rule) needsInside() bool { return len(r.Methods) > 0 || len(r.Paths) > 0 }
