package config

import (
	"fmt"

	"portreeve.dev/gateway/internal/quantity"
	"portreeve.dev/gateway/limits"
)

// OrgLimits are the egress limits of each org, in numbers.
func (c *Config) OrgLimits() (limits.Limits, error) {
	e := c.Egress.Limits
	l := limits.Limits{ConnectionsPerSandbox: c.Limits.ConnectionsPerSandbox, NewConnectionsPerSecond: c.Limits.ConnectsPerSecond,
		ConnectionsPerOrg: e.ConnectionsPerOrg, ConnectionsPerDestination: e.ConnectionsPerDestination}
	for name, n := range map[string]int{"connections_per_org": e.ConnectionsPerOrg, "connections_per_destination": e.ConnectionsPerDestination} {
		if n < 0 {
			return l, fmt.Errorf("egress.limits.%s: %d is negative", name, n)
		}
	}
	for _, q := range []struct {
		name, text string
		into       *int64
	}{
		{"sandbox_in", e.SandboxIn, &l.SandboxInPerSecond}, {"sandbox_out", e.SandboxOut, &l.SandboxOutPerSecond},
		{"org_in", e.OrgIn, &l.OrgInPerSecond}, {"org_out", e.OrgOut, &l.OrgOutPerSecond}, {"monthly_quota", e.MonthlyQuota, &l.MonthlyQuota},
	} {
		if q.text == "" {
			continue
		}
		n, ok := quantity.Bytes(q.text)
		if !ok {
			return l, fmt.Errorf("egress.limits.%s: %q is not a quantity of bytes like 10Mi or 2Ti", q.name, q.text)
		}
		*q.into = n
	}
	return l, nil
}
