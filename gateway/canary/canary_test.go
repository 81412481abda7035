package canary_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/canary"
)

// A cage is a sandbox as the test wants it to be.
type cage struct {
	c        *canary.Canary
	now      time.Time
	attempts []canary.Attempt
	recorded []decisions.Decision
	fail     error
	removed  int
}

var held = []canary.Attempt{
	{Attempt: "udp", Layer: canary.Kernel, Outcome: "refused"},
	{Attempt: "name", Layer: canary.DNS, Outcome: "refused with rcode 3"},
	{Attempt: "tcp", Layer: canary.Proxy, Outcome: "denied"},
}

func decision(layer, verdict string) decisions.Decision {
	return decisions.Decision{Org: canary.Org, Sandbox: canary.Sandbox, Layer: layer, Verdict: verdict, Host: "example.com"}
}

func newCage(t *testing.T) *cage {
	t.Helper()
	g := &cage{now: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), attempts: held, recorded: []decisions.Decision{decision("dns", "deny"), decision("http", "deny")}}
	c, err := canary.New(canary.Config{
		Start:  func(context.Context) error { return g.fail },
		Try:    func(context.Context) ([]canary.Attempt, error) { return g.attempts, nil },
		Remove: func(context.Context) error { g.removed++; return nil },
		Settle: func(context.Context) {
			for _, d := range g.recorded {
				g.c.Note(d)
			}
		},
		Now: func() time.Time { return g.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	g.c = c
	return g
}

func (g *cage) round(t *testing.T) canary.Proof {
	t.Helper()
	g.now = g.now.Add(time.Minute)
	g.c.Round(t.Context())
	return g.c.Proof()
}

func TestHeldRoundIsAProof(t *testing.T) {
	g := newCage(t)
	if p := g.c.Proof(); p.Holds || !p.ProvenAt.IsZero() || len(p.Layers) != 3 {
		t.Errorf("before any round: %+v", p)
	}
	p := g.round(t)
	if !p.Holds || !p.ProvenAt.Equal(g.now) || g.removed != 1 {
		t.Errorf("%+v, %d removed", p, g.removed)
	}
	for _, l := range p.Layers {
		if !l.Holds || !l.ProvenAt.Equal(g.now) {
			t.Errorf("%+v", l)
		}
	}
}

func TestSilenceProvesNothing(t *testing.T) {
	g := newCage(t)
	g.round(t)
	last := g.now
	for what, change := range map[string]func(){
		"no record": func() { g.recorded = nil },
		"no try":    func() { g.attempts = held[:2] },
		"another's denial": func() {
			g.recorded = []decisions.Decision{{Org: "org_a", Sandbox: "sbx_a", Layer: "http", Verdict: "deny"}, decision("dns", "deny")}
		},
	} {
		g.attempts, g.recorded = held, []decisions.Decision{decision("dns", "deny"), decision("http", "deny")}
		change()
		p := g.round(t)
		if l := p.Layers[2]; p.Holds || l.Holds || l.Detail == "" || !l.ProvenAt.Equal(last) || !p.ProvenAt.Equal(last) {
			t.Errorf("%s: %+v", what, p)
		}
	}
}

func TestAllowedIsNoProof(t *testing.T) {
	g := newCage(t)
	g.recorded = append(g.recorded, decision("http", "allow"))
	if p := g.round(t); p.Holds || p.Layers[2].Holds || !p.Layers[1].Holds || !strings.Contains(p.Layers[2].Detail, "example.com") {
		t.Errorf("the edge allowed: %+v", p)
	}
	g = newCage(t)
	g.attempts = append(g.attempts[:0:0], held...)
	g.attempts[0].Out, g.attempts[0].Outcome = true, "answered"
	if p := g.round(t); p.Holds || p.Layers[0].Holds || !p.Layers[1].Holds {
		t.Errorf("the probe got out: %+v", p)
	}
}

func TestFailedRoundProvesNothing(t *testing.T) {
	g := newCage(t)
	g.round(t)
	last := g.now
	g.fail = errors.New("no node")
	p := g.round(t)
	if p.Holds || !p.ProvenAt.Equal(last) || !p.TriedAt.Equal(g.now) || !strings.Contains(p.Error, "no node") || g.removed != 2 {
		t.Errorf("%+v, %d removed", p, g.removed)
	}
	g.fail = nil
	if p := g.round(t); !p.Holds || p.Error != "" || !p.ProvenAt.Equal(g.now) {
		t.Errorf("after it: %+v", p)
	}
}
