package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// edgePatience is how long a question to the edge may take: it answers from memory.
const edgePatience = 5 * time.Second

// liveFlows are those of the edge, for the API.
type liveFlows struct{ edge *link.Peer }

var _ api.Flows = liveFlows{}

func (f liveFlows) Page(ctx context.Context, q flows.Query) (flows.Page, error) {
	var page flows.Page
	err := f.call(ctx, role.EdgeFlows, q, &page)
	return page, err
}

func (f liveFlows) Kill(ctx context.Context, org, sandbox, flow string) (flows.View, error) {
	var v flows.View
	err := f.call(ctx, role.EdgeKillFlow, role.KillFlow{Org: org, Sandbox: sandbox, Flow: flow}, &v)
	var refused *link.Error
	if errors.As(err, &refused) && refused.Code == role.CodeNoFlow {
		err = api.ErrNoFlow
	}
	return v, err
}

func (f liveFlows) call(ctx context.Context, method string, in, out any) error {
	conn := f.edge.Now()
	if conn == nil {
		return api.ErrNoEdge
	}
	ctx, cancel := context.WithTimeout(ctx, edgePatience)
	defer cancel()
	err := conn.Call(ctx, method, in, out)
	if errors.Is(err, link.ErrClosed) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", api.ErrNoEdge, err)
	}
	return err
}
