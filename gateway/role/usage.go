package role

import "portreeve.dev/egress"

// ControlUsage is what edge calls on control: UsageReport -> UsageKnown.
const ControlUsage = "usage"

// UsageReport is what an edge counted in all. Counts only grow, so that one that comes twice or late does no harm.
type UsageReport struct {
	Source string         `json:"source"` // who counts: the edge's file
	Rows   []egress.Usage `json:"rows"`
}

// UsageKnown is what control has for the rows of a report, in their order.
type UsageKnown struct {
	Rows []KnownUsage `json:"rows"`
}

// KnownUsage is what is known of one org and month: of the source that reported, and of all others together.
type KnownUsage struct {
	egress.Usage
	Elsewhere int64 `json:"elsewhere"` // bytes, both ways
}
