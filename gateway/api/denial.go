package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/canary"
	"portreeve.dev/sso"
)

type denialOut struct {
	Body canary.Proof
}

func (s *Server) denialRoutes() {
	route(s, sso.ScopeRead, huma.Operation{OperationID: "get-denial", Method: http.MethodGet, Path: "/health/denial",
		Summary: "When denial was last proven, and at which layer", Tags: []string{"health"},
		Description: "Each minute a throw-away sandbox that may reach nothing tries to, and the edge's records are compared with what it says."}, s.getDenial)
	s.plain(sso.ScopeRead, huma.Operation{OperationID: "get-metrics", Method: http.MethodGet, Path: "/metrics",
		Summary: "The same for a metrics collector, as Prometheus reads it", Tags: []string{"health"}}, nil, nil, s.getMetrics)
}

func (s *Server) getDenial(context.Context, *caller, *struct{}) (*denialOut, error) {
	proof, ok := s.Denial()
	if !ok {
		return nil, problem(http.StatusNotFound, "no_canary", "the configuration says canary.every: 0, so nobody tries")
	}
	return &denialOut{proof}, nil
}
