package client

import "time"

// A Decision is what the commands read of one: the verdict on a name, a connection or a request of a sandbox, and why.
// --output json prints the API's own answer.
type Decision struct {
	ID        string    `json:"id"`
	Time      time.Time `json:"time"`
	Sandbox   string    `json:"sandbox_id"`
	Layer     string    `json:"layer"` // dns, connect, http
	Level     string    `json:"level"` // what identity was judged: http, sni, address
	Verdict   string    `json:"verdict"`
	Reason    string    `json:"reason"`
	Rule      string    `json:"rule"`
	RuleLayer string    `json:"rule_layer"` // floor, ceiling, policy:NAME, own
	Version   int64     `json:"policy_version"`
	Host      string    `json:"host"`
	Addr      string    `json:"address"`
	Port      uint16    `json:"port"`
	Method    string    `json:"method"`
	Path      string    `json:"path"`
	Closed    bool      `json:"closed"` // it tells the end of a flow, whose verdict was told before
	Guidance  string    `json:"agent_guidance"`
}

// Decisions is a page of them, newest first.
type Decisions struct {
	Decisions []Decision `json:"decisions"`
}

// An Explained decision comes with what its reason means.
type Explained struct {
	Decision Decision `json:"decision"`
	Summary  string   `json:"summary"`        // one sentence for people
	Guidance string   `json:"agent_guidance"` // one for agents
}
