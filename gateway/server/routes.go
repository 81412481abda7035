package server

import (
	"context"
	"time"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/ingress/route"
)

// keepEnded is how long ingress is told of a tunnel that has ended: its callers get 410, not 404.
const keepEnded = 24 * time.Hour

// tunnels says how tunnels are named and reached.
func (c *control) tunnels() (api.Tunnels, error) {
	zone, err := route.NewZone(c.setup.TunnelDomain)
	return api.Tunnels{Zone: zone, Port: c.setup.TunnelPort, Plain: c.setup.PlainTunnels, Routed: func(ctx context.Context, revision int64) error {
		return c.routes.WaitApplied(ctx, uint64(revision))
	}}, err
}

// routeState is what ingress must know, as committed.
func (c *control) routeState(ctx context.Context) (any, uint64, error) {
	revision, err := c.store.Revision(ctx) // first: what comes later may be newer, never older
	if err != nil {
		return nil, 0, err
	}
	routes, err := c.store.Routes(ctx, c.now().Add(-keepEnded))
	if err != nil {
		return nil, 0, err
	}
	s := feed.RouteState{Revision: uint64(revision), Records: []route.Record{}}
	for _, r := range routes {
		s.Records = append(s.Records, record(r))
	}
	return s, s.Revision, nil
}

// record is a route as ingress takes it. A tunnel ends with its sandbox at the latest.
func record(r store.Route) route.Record {
	rec := route.Record{Host: r.Host, Tunnel: r.ID, Sandbox: r.Sandbox, Org: r.Org, Port: r.Port, Generation: r.Generation,
		Public: r.Public, AuthEpoch: r.AuthEpoch, ExpiresAt: r.ExpiresAt, AnonymousWakes: r.AnonymousWakes}
	copy(rec.TokenHash[:], r.TokenHash)
	if r.SandboxEnd.Before(rec.ExpiresAt) {
		rec.ExpiresAt = r.SandboxEnd
	}
	switch {
	case !r.DeletedAt.IsZero():
	case r.Status == store.Running:
		rec.State = route.Running
	case r.Status == store.Paused:
		rec.State = route.Paused
	}
	if rec.State == route.Gone {
		rec.TokenHash = route.Hash{}
	}
	return rec
}
