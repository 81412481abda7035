package policies

// Reason says why a verdict is what it is. The list is closed: metrics, logs and agents count on it.
type Reason string

// The reasons that Evaluate and the floor give.
const (
	ReasonAllowed     Reason = "allowed"      // every layer has a matching allow rule and none a matching deny
	ReasonNoRule      Reason = "no_rule"      // some layer has no rule that allows it
	ReasonRuleDenied  Reason = "rule_denied"  // a deny rule matched
	ReasonNoPolicy    Reason = "no_policy"    // there is no snapshot, or a layer has no document
	ReasonFloorHard   Reason = "floor_hard"   // an address or name that nobody can open
	ReasonFloorSoft   Reason = "floor_soft"   // an address that only a platform admin can open
	ReasonPort25      Reason = "port25"       // mail between servers, which only a platform admin can open
	ReasonHostInvalid Reason = "host_invalid" // the host has no normal form, or is none
	ReasonParse       Reason = "parse_error"  // what was sent can't be read in one way only
)

// The reasons that the edge gives around them.
const (
	ReasonStalePolicy       Reason = "stale_policy"           // the snapshot is older than it may be
	ReasonIdentityMismatch  Reason = "identity_mismatch"      // two names of one connection differ
	ReasonSNIMissing        Reason = "sni_missing"            // TLS without a server name, where one is needed
	ReasonSNIMismatch       Reason = "sni_mismatch"           // the server name is not the name that was asked for
	ReasonECH               Reason = "ech"                    // the server name is encrypted
	ReasonNotTLS            Reason = "not_tls"                // TLS was expected
	ReasonNotHTTP           Reason = "not_http"               // HTTP was expected
	ReasonNoName            Reason = "no_name"                // a synthetic address that stands for no name
	ReasonNameShared        Reason = "name_shared"            // an address that was given for several names, and nothing says which
	ReasonNameBudget        Reason = "name_budget"            // too many different names below a wildcard
	ReasonNotPostgres       Reason = "not_postgres"           // PostgreSQL was expected
	ReasonNotSSH            Reason = "not_ssh"                // SSH was expected
	ReasonDoH               Reason = "dns_over_https"         // a way to ask another resolver than ours
	ReasonUnbound           Reason = "unbound"                // the connection belongs to no sandbox
	ReasonRecordFailed      Reason = "record_failed"          // the decision could not be written
	ReasonBudget            Reason = "budget"                 // too many connections, names or bytes
	ReasonProtocol          Reason = "protocol_not_supported" // a protocol we do not speak
	ReasonDNSType           Reason = "dns_type"               // a query type we do not answer
	ReasonResolveFailed     Reason = "resolve_failed"         // the name has no address
	ReasonDialFailed        Reason = "dial_failed"            // the upstream could not be reached
	ReasonCompanyProxy      Reason = "company_proxy"          // the company's proxy, through which everything goes, did not connect
	ReasonHeadTooLarge      Reason = "head_too_large"         // the request head is over its limit
	ReasonTimeout           Reason = "timeout"                // a deadline passed
	ReasonSecretUnavailable Reason = "secret_unavailable"     // a granted secret could not be had or applied
	ReasonPlaceholder       Reason = "placeholder"            // a secret's placeholder on its way to a host without a grant
	ReasonForeign           Reason = "foreign_credentials"    // the sandbox sent a credential of its own
	ReasonRevoked           Reason = "revoked"                // a tightened policy ended the flow
	ReasonOverride          Reason = "override_header"        // a header or the query names another method or path than the one judged
	ReasonCredential        Reason = "credential_invalid"     // what should open a door is missing or wrong
	ReasonCredentialExpired Reason = "credential_expired"     // it was good once
	ReasonCredentialElse    Reason = "credential_elsewhere"   // it is good at another door, or from another address
	ReasonKilled            Reason = "killed"                 // somebody ended the flow by its id
	ReasonQuota             Reason = "quota"                  // the org's bytes of the month are used up
)

// Guidance of each reason: one sentence for an agent that was refused and has to choose what to do next.
var guidance = map[Reason]string{
	ReasonAllowed:     "The request was allowed.",
	ReasonNoRule:      "No rule allows this destination; use an allowed one, or ask for access at http://portreeve.internal.",
	ReasonRuleDenied:  "A rule forbids this destination on purpose; do not retry and do not look for another way to it.",
	ReasonNoPolicy:    "No policy applies to this sandbox yet; retry in a few seconds, then tell the person who runs it.",
	ReasonFloorHard:   "This destination is closed to every sandbox and cannot be opened; do not retry.",
	ReasonFloorSoft:   "Private and reserved addresses are closed here; only the platform's administrator can open one.",
	ReasonPort25:      "Port 25 is closed; send mail through a provider's HTTPS API instead.",
	ReasonHostInvalid: "The host name is malformed or is an address in disguise; use a plain DNS name.",
	ReasonParse:       "The request can be read in more than one way; send it in plain, standard form.",

	ReasonStalePolicy:       "The policy on this node is out of date and everything is closed until it is fresh again; retry in a few seconds.",
	ReasonIdentityMismatch:  "The names given for this connection differ; use the same host in the URL, the TLS server name and the Host header.",
	ReasonSNIMissing:        "The TLS connection names no server; use a client that sends SNI, and a name instead of an address.",
	ReasonSNIMismatch:       "The TLS server name is not the host that was connected to; use the same name for both.",
	ReasonECH:               "The TLS server name is encrypted; turn off Encrypted Client Hello in the client.",
	ReasonNotTLS:            "TLS is expected on this destination; use https, or ask for a rule with another protocol.",
	ReasonNotHTTP:           "HTTP is expected on this destination; ask for a rule with the protocol that you need.",
	ReasonNoName:            "The address belongs to no current name; look the name up again and connect to the answer.",
	ReasonNameShared:        "The address was given for several names and the connection does not say which one it is for; use TLS with a server name, or HTTP.",
	ReasonNameBudget:        "Too many different names below one wildcard were asked for; use fewer, or ask for a rule that names the ones you need.",
	ReasonNotPostgres:       "PostgreSQL's protocol is expected on this destination; ask for a rule with the protocol that you need.",
	ReasonNotSSH:            "SSH is expected on this destination; ask for a rule with the protocol that you need.",
	ReasonDoH:               "Encrypted DNS to other resolvers is closed; use the sandbox's own resolver, which the system's settings name.",
	ReasonUnbound:           "The connection belongs to no running sandbox; retry after the sandbox has started.",
	ReasonRecordFailed:      "The decision could not be recorded, so nothing is let through; retry later and tell the person who runs the sandbox.",
	ReasonBudget:            "A budget of this sandbox is used up; slow down, reuse connections and retry after a pause.",
	ReasonProtocol:          "This protocol is not allowed or not supported here; use HTTPS where you can.",
	ReasonDNSType:           "This kind of DNS query is not answered; ask for an A record.",
	ReasonResolveFailed:     "The name has no usable address; check its spelling.",
	ReasonDialFailed:        "The destination is allowed but did not accept the connection; retry later.",
	ReasonCompanyProxy:      "The destination is allowed, but the company's own proxy, through which everything goes out, did not connect to it; there is no other way, so tell the person who runs the sandbox.",
	ReasonHeadTooLarge:      "The request head is too large; send fewer or shorter headers.",
	ReasonTimeout:           "The connection was too slow and was closed; retry, sending data promptly.",
	ReasonSecretUnavailable: "A stored credential for this host could not be applied, so the request was not sent; tell the person who runs the sandbox.",
	ReasonPlaceholder:       "The request carries a credential's placeholder to a host that has no grant for it; send it only where it is granted.",
	ReasonForeign:           "The request carries a credential of its own, which the policy does not accept here; send it without one.",
	ReasonOverride:          "A header or the query names another method or path than the request line, where the policy looks at these; send the real method and path, and no X-HTTP-Method-Override, X-Original-URL, ?_method= or the like.",
	ReasonRevoked:           "The policy was tightened and no longer allows this connection; do not reconnect.",
	ReasonCredential:        "The proxy does not accept this user name and password; whoever attached the sandbox can get new ones.",
	ReasonCredentialExpired: "The proxy's password has expired; whoever attached the sandbox can get a new one.",
	ReasonCredentialElse:    "The proxy's password is for another door or another address; it can be used only where it was made for.",
	ReasonKilled:            "A person or program with the right to do so ended this connection; ask before opening it again.",
	ReasonQuota:             "The organisation's traffic for this month is used up; tell the person who runs the sandbox, retries will not help.",
}

// String is the reason as it is written everywhere.
func (r Reason) String() string { return string(r) }

// Valid reports whether r is one of the list.
func (r Reason) Valid() bool { _, ok := guidance[r]; return ok }

// Guidance is one sentence for the agent that was refused. It is empty only for a reason that is not on the list.
func (r Reason) Guidance() string { return guidance[r] }

// Reasons returns the whole list, in no order.
func Reasons() []Reason {
	all := make([]Reason, 0, len(guidance))
	for r := range guidance {
		all = append(all, r)
	}
	return all
}
