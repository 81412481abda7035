package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"
)

// routes enters every route. One that doesn't work yet isn't there.
func (s *Server) routes() {
	s.registerRoutes()
	s.keyRoutes()
	s.sandboxRoutes()
	s.ownListRoutes()
	s.executeRoutes()
	s.shellRoutes()
	s.fileRoutes()
	s.policyRoutes()
	s.settingsRoutes()
	s.checkRoutes()
	s.decisionRoutes()
	s.recordRoutes()
	s.allowRoutes()
	s.auditRoutes()
	s.secretRoutes()
	s.tunnelRoutes()
	s.ingressRoutes()
	s.doorRoutes()
	s.authorityRoutes()
	s.flowRoutes()
	s.requestRoutes()
	s.limitRoutes()
	s.denialRoutes()
	s.webhookRoutes()
	s.floorRoutes()
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

// shape describes a JSON body of a plain handler.
func shape[T any](s *Server, name string) *huma.MediaType {
	return &huma.MediaType{Schema: s.huma.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, name)}
}

// success is the answer of deletes and stops.
type success struct {
	Body struct {
		Success bool `json:"success"`
	}
}

func succeeded() *success {
	out := &success{}
	out.Body.Success = true
	return out
}
