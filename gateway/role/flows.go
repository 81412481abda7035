package role

// Methods that control calls on edge about live flows.
const (
	EdgeFlows    = "flows"     // flows.Query -> flows.Page
	EdgeKillFlow = "kill_flow" // KillFlow -> flows.View, as it ended
)

// CodeNoFlow is the code of the error of EdgeKillFlow when there is no such flow any more.
const CodeNoFlow = "no_flow"

// KillFlow ends one flow of an org. An empty Sandbox is any of its.
type KillFlow struct {
	Org     string `json:"org"`
	Sandbox string `json:"sandbox,omitempty"`
	Flow    string `json:"flow"`
}
