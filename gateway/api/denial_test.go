package api_test

import (
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/canary"
)

func TestDenialIsSaid(t *testing.T) {
	at := time.Unix(1_780_000_000, 0).UTC()
	proof := canary.Proof{Layers: []canary.LayerProof{{Layer: canary.Kernel, Holds: true, ProvenAt: at}, {Layer: canary.Proxy, Detail: "the edge recorded no denial"}}}
	w := apitest.New(t, func(c *api.Config) { c.Denial = func() (canary.Proof, bool) { return proof, true } })
	c := w.Org("one")
	a := c.Do("GET", "/health/denial", nil).Want(200)
	if a.At("holds") != false || a.At("proven_at") != nil || a.String("layers.0.proven_at") != at.Format(time.RFC3339) || a.String("layers.1.detail") == "" {
		t.Errorf("%s", a.Body)
	}
	text := string(c.Do("GET", "/metrics", nil).Want(200).Body)
	for _, want := range []string{`portreeve_denial_holds{layer="kernel"} 1`, `portreeve_denial_holds{layer="proxy"} 0`,
		`portreeve_denial_proven_timestamp_seconds{layer="kernel"} 1.78e+09`, `portreeve_denial_proven_timestamp_seconds{layer="proxy"} 0`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	apitest.New(t).Org("none").Do("GET", "/health/denial", nil).Refused(404, "no_canary")
}
