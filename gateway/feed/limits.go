package feed

import (
	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/limits"
)

// Limits are what an org may use, and what of its month's quota was used as control knows it.
type Limits struct {
	limits.Limits
	Month   string    `json:"month,omitempty"`
	Counted []Counted `json:"counted,omitempty"`
}

// Counted is what one source counted in the month: an edge tells its own count from those of others by it.
type Counted struct {
	Source string `json:"source"`
	In     int64  `json:"in"`
	Out    int64  `json:"out"`
}

// Edge is the limits as an edge holds them that counts as source.
func (l Limits) Edge(source string) flows.Limits {
	e := flows.Limits{PerSandbox: l.ConnectionsPerSandbox, PerOrg: l.ConnectionsPerOrg, PerDestination: l.ConnectionsPerDestination, NewPerSecond: l.NewConnectionsPerSecond,
		SandboxIn: l.SandboxInPerSecond, SandboxOut: l.SandboxOutPerSecond, OrgIn: l.OrgInPerSecond, OrgOut: l.OrgOutPerSecond,
		Quota: l.MonthlyQuota, Month: l.Month}
	for _, c := range l.Counted {
		if c.Source != source {
			e.Elsewhere += c.In + c.Out
		}
	}
	return e
}

// Limits returns those of every org, by the last state that came, however old: what an org may not do it may not do without control
// either.
func (h *Holder) Limits() map[string]Limits {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.now == nil {
		return nil
	}
	return h.now.limits
}
