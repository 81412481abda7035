package server

import (
	"net/http"

	"portreeve.dev/ingress/route"
)

// notForTunnels answers 421 to what was meant for a tunnel: a browser keeps the two apart by their names, and so must we.
func notForTunnels(zone route.Zone, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if host, _, err := route.Split(r.Host); err == nil && zone.Contains(host) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusMisdirectedRequest)
			w.Write([]byte(`{"type":"https://portreeve.dev/problems/misdirected","title":"Misdirected Request","status":421,"code":"misdirected","detail":"this is the API; tunnels answer on another port"}` + "\n"))
			return
		}
		next.ServeHTTP(w, r)
	})
}
