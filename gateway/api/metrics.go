package api

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

var (
	denialHolds = prometheus.NewDesc("portreeve_denial_holds",
		"1 if a sandbox that may reach nothing reached nothing in the last round, by layer.", []string{"layer"}, nil)
	denialProven = prometheus.NewDesc("portreeve_denial_proven_timestamp_seconds",
		"When that was last so; 0: never yet.", []string{"layer"}, nil)
)

// metrics are read when they are asked for.
type metrics struct{ *Server }

func (m metrics) Describe(to chan<- *prometheus.Desc) { to <- denialHolds; to <- denialProven }

func (m metrics) Collect(to chan<- prometheus.Metric) {
	proof, ok := m.Denial()
	if !ok {
		return
	}
	for _, l := range proof.Layers {
		holds, proven := 0.0, 0.0
		if l.Holds {
			holds = 1
		}
		if !l.ProvenAt.IsZero() {
			proven = float64(l.ProvenAt.Unix())
		}
		to <- prometheus.MustNewConstMetric(denialHolds, prometheus.GaugeValue, holds, string(l.Layer))
		to <- prometheus.MustNewConstMetric(denialProven, prometheus.GaugeValue, proven, string(l.Layer))
	}
}

func (s *Server) getMetrics(w http.ResponseWriter, r *http.Request, _ *caller) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics{s})
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}
