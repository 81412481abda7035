package api_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/policies"
)

// exempting is a world whose floor opens 10.1.0.0/16 on port 5432 to the orgs that open names.
func exempting(t *testing.T) (w *apitest.World, open func(orgs ...string)) {
	t.Helper()
	cfg := policies.FloorConfig{Hard: []netip.Prefix{netip.MustParsePrefix("10.231.0.0/16")}}
	w = apitest.New(t, func(c *api.Config) {
		c.FloorNow = func(context.Context) (*policies.Floor, error) { return policies.NewFloor(cfg) }
	})
	return w, func(orgs ...string) {
		cfg.Exempt = []policies.Exemption{{CIDR: netip.MustParsePrefix("10.1.0.0/16"), Ports: []uint16{5432}, Orgs: orgs}}
	}
}

func toAddress(addr string, port uint16, protocol, reason string) func(*decisions.Decision) {
	return func(d *decisions.Decision) {
		d.Addr, d.Port, d.Protocol, d.Reason, d.Level = addr, port, protocol, reason, "address"
	}
}

func ranges(ports []int, cidrs ...string) object {
	return object{"id": "net", "action": "allow", "cidrs": cidrs, "ports": ports, "protocols": []string{"https", "tcp", "postgres"}}
}

// TestAnswersKnowTheFloor: check, replay, learn and lint say of an address what the edge would, with the exemptions of the org that asks, and
// of no other.
func TestAnswersKnowTheFloor(t *testing.T) {
	w, open := exempting(t)
	one, two := w.Org("one"), w.Org("two")
	open(one.Org)
	draft := document(ranges([]int{443, 5432}, "10.0.0.0/8", "11.0.0.0/8"))
	for _, c := range []*apitest.Client{one, two} {
		box := c.Sandbox()
		for addr, reason := range map[string]string{"10.2.0.1": "no_rule", "10.231.0.9": "floor_hard", "11.0.0.1": "no_rule"} {
			record(t, w, c.Org, box, "", toAddress(addr, 443, "https", reason))
		}
		record(t, w, c.Org, box, "", toAddress("10.1.0.1", 5432, "postgres", "floor_soft"))

		exempt := c == one
		allowed, closed := 1.0, 3.0
		if exempt {
			allowed, closed = 2, 2
		}
		got := c.Do("POST", "/policies/replay", object{"document": draft}).Want(200)
		if got.At("newly_allowed_count") != allowed || got.At("closed_by_floor_count") != closed || got.At("newly_denied_count") != 0.0 || got.At("unjudged") != 0.0 ||
			got.String("closed_by_floor.0.layer") != "floor" || !strings.HasPrefix(got.String("closed_by_floor.0.reason"), "floor_") {
			t.Errorf("exempt %v: %s", exempt, got.Body)
		}
		text := string(c.Also("Accept", "application/yaml").Do("POST", "/policies/learn", object{}).Want(200).Body)
		if strings.Contains(text, "id: learnt.10.1.0.1.5432.postgres") != exempt || strings.Contains(text, "id: learnt.10.2") || strings.Contains(text, "id: learnt.10.231") ||
			!strings.Contains(text, "id: learnt.11.0.0.1.443.https") || !strings.Contains(text, "10.231.0.9 port 443 (refused, floor_hard)") {
			t.Errorf("exempt %v: learnt\n%s", exempt, text)
		}
		for _, q := range []struct {
			addr, protocol, reason string
			port                   int
		}{
			{"10.2.0.1", "https", "floor_soft", 443}, {"10.231.0.9", "https", "floor_hard", 443}, {"11.0.0.1", "https", "allowed", 443},
			{"10.1.0.1", "postgres", map[bool]string{true: "allowed", false: "floor_soft"}[exempt], 5432},
		} {
			a := c.Do("POST", "/policies/check", object{"host": q.addr, "port": q.port, "protocol": q.protocol, "document": draft}).Want(200)
			closed := strings.HasPrefix(q.reason, "floor_")
			if a.String("reason") != q.reason || a.At("requestable") != false || a.String("explanation.layers.0.name") != "floor" || (a.String("explanation.layers.0.action") == "deny") != closed ||
				a.String("explanation.verdict.reason") != q.reason {
				t.Errorf("exempt %v, %s: %s", exempt, q.addr, a.Body)
			}
		}
		findings := func(rule object) (codes []string) {
			var found struct{ Findings []policies.Finding }
			c.Do("POST", "/policies/lint", object{"document": document(rule)}).Want(200).JSON(&found)
			for _, f := range found.Findings {
				codes = append(codes, f.Code)
			}
			return codes
		}
		if got := findings(ranges([]int{5432}, "10.1.0.0/16")); slices.Contains(got, policies.FindNeverMatches) == exempt {
			t.Errorf("exempt %v: findings %v", exempt, got)
		}
		if got := findings(ranges([]int{443}, "10.231.0.0/16")); !slices.Contains(got, policies.FindNeverMatches) {
			t.Errorf("exempt %v: findings %v", exempt, got)
		}
		if got := findings(ranges([]int{443}, "11.0.0.0/16")); len(got) > 0 {
			t.Errorf("exempt %v: findings %v", exempt, got)
		}
	}
}

// TestEffectKnowsTheFloor: what an allowed host would have let through is told without the names that the floor closes.
func TestEffectKnowsTheFloor(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := c.Sandbox()
	record(t, w, c.Org, box, "metadata.google.internal")
	record(t, w, c.Org, box, "other.google.internal")
	a := c.Do("POST", "/allow", object{"host": "*.google.internal", "for": "1h", "dry_run": true}).Want(200)
	if a.At("would_have_allowed.looked_at") != 2.0 || a.At("would_have_allowed.count") != 1.0 || a.String("would_have_allowed.decisions.0.host") != "other.google.internal" {
		t.Errorf("%s", a.Body)
	}
}
