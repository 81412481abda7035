package server

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"portreeve.dev/ingress/route"
)

func TestTunnelHostsNeverReachTheAPI(t *testing.T) {
	zone, err := route.NewZone("tunnel.localhost")
	if err != nil {
		t.Fatal(err)
	}
	reached := false
	s := httptest.NewServer(notForTunnels(zone, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })))
	defer s.Close()
	for host, want := range map[string]int{
		"aaaabbbbccccdddd-3000.tunnel.localhost":       421,
		"AAAABBBBCCCCDDDD-3000.Tunnel.LOCALHOST.:8080": 421,
		"tunnel.localhost":                             421,
		"anything.below.tunnel.localhost:1":            421,
		"console.localhost:8080":                       200,
		"127.0.0.1:8080":                               200,
		"nottunnel.localhost":                          200,
	} {
		reached = false
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/api/v1/sandboxes", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want || reached != (want == 200) {
			t.Errorf("%s: got %d, reached the API: %v", host, resp.StatusCode, reached)
		}
	}
}
