package api

import (
	"context"
	"time"

	"portreeve.dev/gateway/internal/store"
)

// silentAfter is how long an edge may say nothing before it counts as away. It speaks every five seconds.
const silentAfter = 15 * time.Second

type decisionHealthOut struct {
	Body struct {
		Mode     string `json:"mode" enum:"strict,best_effort"`
		Paths    string `json:"paths" enum:"full,prefix,none"`
		KeepDays int64  `json:"keep_days"`

		Lost   uint64 `json:"lost" doc:"Decisions of which nothing is left, in all. 0 is how it should be."`
		Unsure uint64 `json:"unsure" doc:"Numbers that a crash left open: each was a decision that is lost, or never one."`

		Held            int64       `json:"held" doc:"Decisions in the store."`
		HeldBytes       int64       `json:"held_bytes"`
		Forgotten       int64       `json:"forgotten" doc:"Deleted for their age or for want of room."`
		ForgottenBefore *time.Time  `json:"forgotten_before" doc:"What was decided before this may be deleted; null: nothing is."`
		Nodes           []spoolView `json:"nodes" nullable:"false" doc:"Each spool, the newest first."`
	}
}

type spoolView struct {
	Node       string       `json:"node"`
	Spool      string       `json:"spool" doc:"A file of decisions on the node; another one takes its place when it is lost."`
	State      string       `json:"state" enum:"ok,silent,spool_unusable,spool_moved,ended" doc:"ended: another spool has taken its place."`
	Written    uint64       `json:"written" doc:"By the node's word."`
	Shipped    uint64       `json:"shipped" doc:"Arrived here."`
	Waiting    uint64       `json:"waiting" doc:"Written, and not here yet."`
	Oldest     *time.Time   `json:"oldest_waiting"`
	Bytes      int64        `json:"spool_bytes" doc:"That the org's decisions hold on the node."`
	Lost       uint64       `json:"lost"`
	OverBudget uint64       `json:"over_budget" doc:"Of the lost ones: refused, as their sandbox had used up its budget."`
	Unsure     uint64       `json:"unsure"`
	Missing    []store.Span `json:"missing" nullable:"false" doc:"The newest missing numbers."`
	SeenAt     time.Time    `json:"seen_at"`
}

// missingShown bounds what is listed of missing numbers.
const missingShown = 20

func (s *Server) decisionHealth(ctx context.Context, c *caller, _ *struct{}) (*decisionHealthOut, error) {
	s.Settle(ctx)
	h, err := s.Store.Holdings(ctx, c.org())
	if err != nil {
		return nil, err
	}
	numbers, err := s.Store.Numbers(ctx, c.org())
	if err != nil {
		return nil, err
	}
	out := &decisionHealthOut{}
	b := &out.Body
	b.Mode, b.Paths, b.KeepDays = modeOf(h.DecisionSettings), h.Paths, h.KeepDays
	b.Held, b.HeldBytes, b.Forgotten, b.ForgottenBefore = h.Count, h.Bytes, h.Forgotten, timeOrNull(h.ForgottenBefore)
	b.Nodes = []spoolView{}
	for _, n := range numbers {
		v := s.viewSpool(n)
		b.Lost, b.Unsure = b.Lost+v.Lost, b.Unsure+v.Unsure
		b.Nodes = append(b.Nodes, v)
	}
	return out, nil
}

func (s *Server) viewSpool(n store.Numbers) spoolView {
	v := spoolView{Node: n.Node, Spool: n.ID, State: "ok", Written: n.Written, Shipped: n.Received, Bytes: n.Bytes, Lost: n.Lost(), OverBudget: n.Budget,
		Unsure: min(n.Unsure, n.Highest-n.Received), Missing: []store.Span{}, SeenAt: n.SeenAt, Oldest: timeOrNull(n.Oldest)}
	if n.Written > n.Received {
		v.Waiting = n.Written - n.Received
	}
	switch {
	case !n.EndedAt.IsZero():
		v.State = "ended"
		v.Unsure += n.Reserved - min(n.Reserved, n.Highest) // what it drew and never sent
	case s.Now().Sub(n.SeenAt) > silentAfter:
		v.State = "silent"
	case n.Error != "":
		v.State = n.Error
	}
	v.Missing = append(v.Missing, n.Missing[max(0, len(n.Missing)-missingShown):]...)
	return v
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// loss is what the list and the tail say of decisions that aren't there.
type loss struct {
	Lost            uint64     `json:"lost" doc:"Decisions that were lost, in all; GET /decisions/health says where."`
	ForgottenBefore *time.Time `json:"forgotten_before" doc:"What was decided before this may be deleted; null: nothing is."`
}

func (s *Server) lossOf(ctx context.Context, org string) (loss, store.Holdings, error) {
	h, err := s.Store.Holdings(ctx, org)
	if err != nil {
		return loss{}, h, err
	}
	numbers, err := s.Store.Numbers(ctx, org)
	l := loss{ForgottenBefore: timeOrNull(h.ForgottenBefore)}
	for _, n := range numbers {
		l.Lost += n.Lost()
	}
	return l, h, err
}
