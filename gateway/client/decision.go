package client

import "time"

// A Decision is what the commands read of one: the verdict on a name, a connection or a request of a sandbox, and why.
// --output json prints the API's own answer.
type Decision struct {
	ID         string    `json:"id"`
	Time       time.Time `json:"time"`
	Sandbox    string    `json:"sandbox_id"`
	Layer      string    `json:"layer"` // dns, connect, http
	Level      string    `json:"level"` // what identity was judged: http, sni, address
	Verdict    string    `json:"verdict"`
	Reason     string    `json:"reason"`
	Rule       string    `json:"rule"`
	RuleLayer  string    `json:"rule_layer"` // floor, ceiling, policy:NAME, own
	Version    int64     `json:"policy_version"`
	Host       string    `json:"host"`
	Addr       string    `json:"address"`
	Port       uint16    `json:"port"`
	Method     string    `json:"method"`
	Path       string    `json:"path"`
	Count      uint64    `json:"count"` // equal ones that it stands for, up to Until; 0 is one
	Until      time.Time `json:"until"`
	Closed     bool      `json:"closed"`      // it tells the end of a flow, whose verdict was told before
	Status     int       `json:"status"`      // of the upstream's answer; 0: none came, or it was not seen
	BytesOut   int64     `json:"bytes_out"`   // sandbox to upstream
	BytesIn    int64     `json:"bytes_in"`    // upstream to sandbox
	DurationMS int64     `json:"duration_ms"` //
	Error      string    `json:"error"`       // a word for what failed after the verdict
	Guidance   string    `json:"agent_guidance"`
}

// Decisions is a page of them, newest first.
type Decisions struct {
	Decisions []Decision `json:"decisions"`
	Lost      uint64     `json:"lost"` // decisions that are in no list, in all
}

// A LostEvent says in a stream that something is not in it.
type LostEvent struct {
	Reason string `json:"reason"` // not_recorded, forgotten, reset
	Count  uint64 `json:"count"`
}

// DecisionSettings say how decisions are recorded.
type DecisionSettings struct {
	Mode     string `json:"mode"`  // strict, best_effort
	Paths    string `json:"paths"` // full, prefix, none
	KeepDays int64  `json:"keep_days"`
	Version  int64  `json:"version,omitempty"`
}

// DecisionHealth says whether decisions were lost.
type DecisionHealth struct {
	Mode            string        `json:"mode"`
	Paths           string        `json:"paths"`
	KeepDays        int64         `json:"keep_days"`
	Lost            uint64        `json:"lost"`
	Unsure          uint64        `json:"unsure"`
	Held            int64         `json:"held"`
	HeldBytes       int64         `json:"held_bytes"`
	ForgottenBefore *time.Time    `json:"forgotten_before"`
	Nodes           []SpoolHealth `json:"nodes"`
}

// SpoolHealth is that of one spool of a node.
type SpoolHealth struct {
	Node       string     `json:"node"`
	State      string     `json:"state"`
	Written    uint64     `json:"written"`
	Shipped    uint64     `json:"shipped"`
	Waiting    uint64     `json:"waiting"`
	Oldest     *time.Time `json:"oldest_waiting"`
	Bytes      int64      `json:"spool_bytes"`
	Lost       uint64     `json:"lost"`
	OverBudget uint64     `json:"over_budget"`
	Unsure     uint64     `json:"unsure"`
}

// An Explained decision comes with what its reason means.
type Explained struct {
	Decision Decision `json:"decision"`
	Summary  string   `json:"summary"`        // one sentence for people
	Guidance string   `json:"agent_guidance"` // one for agents
}
