package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

// Flows asks the edge about live connections. Safe for concurrent use.
type Flows interface {
	// Page lists what the query chooses. ErrNoEdge: nobody could be asked.
	Page(ctx context.Context, q flows.Query) (flows.Page, error)
	// Kill ends one flow of the org at once. ErrNoFlow: it had ended already.
	Kill(ctx context.Context, org, sandbox, flow string) (flows.View, error)
}

// Why Flows fails.
var (
	ErrNoEdge = errors.New("the edge does not answer")
	ErrNoFlow = errors.New("there is no such flow")
)

// noEdge is the Flows of an API that has none.
type noEdge struct{}

func (noEdge) Page(context.Context, flows.Query) (flows.Page, error) { return flows.Page{}, ErrNoEdge }
func (noEdge) Kill(context.Context, string, string, string) (flows.View, error) {
	return flows.View{}, ErrNoEdge
}

// A FlowFilter chooses among flows.
type FlowFilter struct {
	Host   string `query:"host" maxLength:"300"`
	Rule   string `query:"rule" maxLength:"200" doc:"Id of the rule that a flow lives by."`
	Flow   string `query:"flow" maxLength:"64" doc:"Only this one; for a request, the connection that it is on."`
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
	Cursor string `query:"cursor" maxLength:"64" doc:"next_cursor of the page before."`
}

type sandboxFlowsIn struct {
	ID string `path:"id"`
	FlowFilter
}

type flowsIn struct {
	Sandbox string `query:"sandbox_id" maxLength:"64"`
	FlowFilter
}

type flowsOut struct {
	Body struct {
		Flows      []flows.View `json:"flows" nullable:"false"`
		NextCursor *string      `json:"next_cursor" doc:"null: there are no more."`
	}
}

type flowIDIn struct {
	ID   string `path:"id"`
	Flow string `path:"flow"`
}

type flowOut struct {
	Body struct {
		Flow flows.View `json:"flow" doc:"As it was when it was ended."`
	}
}

func (s *Server) flowRoutes() {
	tags := []string{"flows"}
	route(s, sso.ScopeRead, huma.Operation{OperationID: "list-sandbox-flows", Method: http.MethodGet, Path: "/sandbox/{id}/flows", Summary: "List a sandbox's live connections",
		Description: "What is open now, in the order in which it began, with the requests that are under way on it.", Tags: tags}, s.sandboxFlows)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "list-flows", Method: http.MethodGet, Path: "/flows", Summary: "List the org's live connections", Tags: tags}, s.orgFlows)
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "kill-flow", Method: http.MethodDelete, Path: "/sandbox/{id}/flows/{flow}", Summary: "End a live connection",
		Description: "At once, with the reason killed; of a connection that carries several requests, one of them can be ended alone. The policy stays as it is: a sandbox may connect again.",
		Tags:        tags}, s.killFlow)
}

func (s *Server) sandboxFlows(ctx context.Context, c *caller, in *sandboxFlowsIn) (*flowsOut, error) {
	if _, err := s.sandbox(ctx, c, in.ID); err != nil {
		return nil, err
	}
	return s.listFlows(ctx, c, in.ID, in.FlowFilter)
}

func (s *Server) orgFlows(ctx context.Context, c *caller, in *flowsIn) (*flowsOut, error) {
	if in.Sandbox != "" {
		if _, err := s.sandbox(ctx, c, in.Sandbox); err != nil {
			return nil, err
		}
	}
	return s.listFlows(ctx, c, in.Sandbox, in.FlowFilter)
}

func (s *Server) listFlows(ctx context.Context, c *caller, sandbox string, f FlowFilter) (*flowsOut, error) {
	if f.Cursor != "" && !strings.HasPrefix(f.Cursor, "flo_") {
		return nil, invalid("query.cursor", "is not a cursor of this list")
	}
	page, err := s.Flows.Page(ctx, flows.Query{Org: c.org(), Sandbox: sandbox, Flow: f.Flow, Host: strings.ToLower(strings.TrimSuffix(f.Host, ".")),
		Rule: f.Rule, After: f.Cursor, Limit: f.Limit})
	if err != nil {
		return nil, s.edgeRefused(err)
	}
	out := &flowsOut{}
	out.Body.Flows = page.Flows
	if out.Body.Flows == nil {
		out.Body.Flows = []flows.View{}
	}
	if page.More && len(page.Flows) > 0 {
		out.Body.NextCursor = &page.Flows[len(page.Flows)-1].ID
	}
	return out, nil
}

// killFlow writes down who ends what before it is ended: nothing is ended without an entry, and one that meanwhile ended by itself
// is as good as killed.
func (s *Server) killFlow(ctx context.Context, c *caller, in *flowIDIn) (*flowOut, error) {
	if _, err := s.sandbox(ctx, c, in.ID); err != nil {
		return nil, err
	}
	page, err := s.Flows.Page(ctx, flows.Query{Org: c.org(), Sandbox: in.ID, Flow: in.Flow, Limit: 1})
	if err != nil {
		return nil, s.edgeRefused(err)
	}
	if len(page.Flows) == 0 {
		return nil, notFound("flow")
	}
	out := &flowOut{}
	out.Body.Flow = page.Flows[0]
	_, err = s.Store.Change(ctx, c.By, func(tx *store.Tx) error {
		return tx.Record(ctx, audit.FlowKill, in.Flow, map[string]string{"sandbox": in.ID, "host": out.Body.Flow.Host, "address": out.Body.Flow.Address, "decision": out.Body.Flow.Decision})
	})
	if err != nil {
		return nil, err
	}
	ended, err := s.Flows.Kill(ctx, c.org(), in.ID, in.Flow)
	switch {
	case err == nil:
		out.Body.Flow = ended
	case !errors.Is(err, ErrNoFlow):
		return nil, s.edgeRefused(err)
	}
	return out, nil
}

// edgeRefused tells apart that the edge is away from what is wrong with it.
func (s *Server) edgeRefused(err error) error {
	if !errors.Is(err, ErrNoEdge) {
		s.Log.Error("asking the edge", "err", err)
	}
	return problem(http.StatusServiceUnavailable, "edge_unavailable", "the edge does not answer; nothing passes it meanwhile").with("Retry-After", "2")
}
