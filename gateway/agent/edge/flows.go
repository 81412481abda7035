package edge

import (
	"context"

	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/policies"
)

// registerFlows is what control may ask about live flows. It names the org each time: another org's flows are not there.
func (e *Edge) registerFlows() {
	link.Handle(e.control.Mux, role.EdgeFlows, func(_ context.Context, q flows.Query) (flows.Page, error) {
		return e.flows.Page(q), nil
	})
	link.Handle(e.control.Mux, role.EdgeKillFlow, func(_ context.Context, k role.KillFlow) (flows.View, error) {
		v, ok := e.flows.KillFlow(k.Org, k.Sandbox, k.Flow, policies.ReasonKilled)
		if !ok {
			return v, &link.Error{Code: role.CodeNoFlow, Message: "there is no such flow"}
		}
		e.log.Info("a flow was ended by its id", "flow", k.Flow, "sandbox", v.Sandbox)
		return v, nil
	})
}
