package role

import (
	"time"

	"portreeve.dev/egress"
)

// Methods that edge calls on control on behalf of a sandbox, which asks about itself. Control believes the edge no more than
// that: whose the sandbox is and what may be asked for, it looks up itself.
const (
	ControlAsk      = "ask"          // AccessAsk -> egress.Access
	ControlAccess   = "access"       // AccessQuery -> egress.Access
	ControlDecision = "own_decision" // DecisionQuery -> decisions.Decision
	ControlTrust    = "trust"        // AboutSandbox -> Trust
	ControlRevoked  = "revoked"      // RevokedQuery -> Revoked
	ControlPause    = "pause_self"   // AboutSandbox -> {}
)

// Codes of the errors that these methods answer with; their messages are for the sandbox.
const (
	CodeNotRequestable = "not_requestable"
	CodeAlreadyAllowed = "already_allowed"
	CodeTooManyAsks    = "too_many_open_requests"
	CodeInvalidAsk     = "invalid_request"
	CodeNoAsk          = "request_not_found"
	CodeNoDecision     = "decision_not_found"
	CodeNotRunning     = "sandbox_not_running"
	CodeNoList         = "list_not_found"
)

// AboutSandbox says who asks, as edge knows it by the wire.
type AboutSandbox struct {
	Sandbox     string `json:"sandbox"`
	Org         string `json:"org"`
	Incarnation uint64 `json:"incarnation"`
}

// AccessAsk asks for access.
type AccessAsk struct {
	AboutSandbox
	Ask egress.Ask `json:"ask"`
}

// AccessQuery asks how a request for access stands.
type AccessQuery struct {
	AboutSandbox
	ID   string        `json:"id"`
	Wait time.Duration `json:"wait"` // for its end, while somebody is there to decide; at most AccessWait
}

// AccessWait is the longest that an answer waits.
const AccessWait = 30 * time.Second

// DecisionQuery asks for a decision about the sandbox.
type DecisionQuery struct {
	AboutSandbox
	ID string `json:"id"`
}

// RevokedQuery asks for the list of what a root of the sandbox's org took back.
type RevokedQuery struct {
	AboutSandbox
	ID string `json:"id"` // of the root
}

// Revoked is that list, in DER.
type Revoked struct {
	List []byte `json:"list"`
}

// Trust is the authority of an org, in PEM.
type Trust struct {
	PEM string `json:"pem"`
}
