package api

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// health answers without a credential and says nothing that isn't for everybody.
func (s *Server) health(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	answer := map[string]string{"status": "healthy", "database": "connected", "timestamp": s.Now().UTC().Format(time.RFC3339)}
	status := http.StatusOK
	if err := s.Store.Ping(ctx); err != nil {
		s.Log.Error("health", "err", err)
		answer["status"], answer["database"] = "unhealthy", "unreachable"
		status = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(answer)
}
