package decisions

import "time"

// A Decision is one verdict as it is recorded: once before the dial, and once more, with Closed set, when the flow ended.
// It holds no value, no header and no query: those may be secrets. A row with a Count stands for so many equal ones between Time
// and Until; it comes closed, with the sums of their bytes. One with Until and no Count
// stands for no decision: it has bytes of some that another row counted, or says of one of them that its answer held a stored credential.
type Decision struct {
	ID          string    `json:"id"`                       // dec_<uuidv7>
	Time        time.Time `json:"time"`                     // UTC, when the verdict was given
	Org         string    `json:"org_id"`                   // org_<uuidv7>
	Sandbox     string    `json:"sandbox_id"`               // sbx_<uuidv7>
	Incarnation uint64    `json:"incarnation"`              //
	Flow        string    `json:"flow_id,omitempty"`        // flo_<uuidv7>: the connection it was given on
	Layer       string    `json:"layer"`                    // dns, connect, http
	Level       string    `json:"level,omitempty"`          // what identity was judged: http, sni, address
	Verdict     string    `json:"verdict"`                  // allow or deny
	Reason      string    `json:"reason"`                   // from the closed list in policies
	Rule        string    `json:"rule,omitempty"`           // id of the rule that decided
	RuleLayer   string    `json:"rule_layer,omitempty"`     // floor, ceiling, policy:NAME, own
	Revision    uint64    `json:"policy_revision"`          // of the snapshot that judged
	Version     int64     `json:"policy_version"`           // of the named policy or ceiling that decided
	Host        string    `json:"host,omitempty"`           // normal form
	Addr        string    `json:"address,omitempty"`        // the address dialled, or asked for
	Port        uint16    `json:"port,omitempty"`           //
	Protocol    string    `json:"protocol,omitempty"`       // https, http, tls, tcp, ssh, postgres, dns
	Method      string    `json:"method,omitempty"`         //
	Path        string    `json:"path,omitempty"`           // canonical, without the query
	Secrets     []Use     `json:"secrets,omitempty"`        // what was injected, by id
	Foreign     []string  `json:"foreign,omitempty"`        // where the sandbox sent credentials of its own: header:cookie; blocked or removed; at most 16 of 64 bytes
	ForeignHash []string  `json:"foreign_hash,omitempty"`   // beside each place of foreign: what was there, as a hash under a key of the org's own
	Count       uint64    `json:"count,omitempty"`          // how many equal decisions this row stands for; 0 is one
	Until       time.Time `json:"until,omitzero"`           // of the last of them
	Closed      bool      `json:"closed,omitempty"`         // the fields below are final
	Status      int       `json:"status,omitempty"`         // of the upstream's answer
	BytesOut    int64     `json:"bytes_out,omitempty"`      // sandbox to upstream
	BytesIn     int64     `json:"bytes_in,omitempty"`       // upstream to sandbox
	DurationMS  int64     `json:"duration_ms,omitempty"`    //
	Error       string    `json:"error,omitempty"`          // kind of failure after the verdict: dial_failed, dial_timeout, ...
	Guidance    string    `json:"agent_guidance,omitempty"` // one sentence for whoever was refused

	// Fold says that the rule wants its decisions counted, not kept one by one. It holds for allowed ones without a secret.
	Fold bool `json:"-"`
}

// A Use says that a secret went into a request: which one and where, never what.
type Use struct {
	Secret  string `json:"secret_id"`
	Version int64  `json:"version"`
	Place   string `json:"place"` // header:authorization, query:key, ...
}
