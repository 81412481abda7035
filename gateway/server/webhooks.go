package server

import (
	"context"
	"errors"
	"net"
	"time"

	"portreeve.dev/egress/dial"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/internal/outbound"
	"portreeve.dev/gateway/webhooks"
)

// deliveriesKept is how long it is remembered what was delivered, or given up.
const deliveriesKept = 7 * 24 * time.Hour

// newSender makes what tells orgs' endpoints of events. Every connection of its is made under the floor of that moment, as the edge
// would make it: an endpoint's URL is an org's word. nil: there is nobody to ask for names.
func (c *control) newSender() (*webhooks.Sender, error) {
	roots, err := outbound.Roots(c.setup.SystemRoots, c.setup.UpstreamCA)
	if err != nil {
		return nil, err
	}
	dialer, err := outbound.New(c.setup.UpstreamDNS, c.setup.Upstream, roots, c.now)
	if errors.Is(err, outbound.ErrNoResolver) {
		c.log.Error("no webhook is sent", "err", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return webhooks.New(webhooks.Config{
		Queue: c.store, Roots: roots, Now: c.now, Log: c.log,
		Dial: func(ctx context.Context, org, host string, port uint16) (net.Conn, error) {
			floor, err := c.floorNow(ctx)
			if err != nil {
				return nil, err
			}
			ways, err := c.ways(ctx)
			if err != nil {
				return nil, err
			}
			dialer.SetWays(ways)
			dialer.SetFloor(floor)
			// The URL names the host: an exemption that the org has may be used, and no other.
			conn, _, err := dialer.Dial(ctx, dial.Target{Org: org, Host: host, Port: port, Named: true})
			return conn, err
		},
		Secrets: func(e webhooks.Endpoint, sealed []byte) ([][]byte, error) {
			return api.OpenWebhookSecrets(c.keyring, e, sealed)
		},
	})
}

// newDenials sums up denials for the orgs that want to be told.
func (c *control) newDenials() *webhooks.Denials {
	return &webhooks.Denials{Log: c.log, Now: c.now, Send: func(ctx context.Context, org string, s webhooks.DeniedSummary) error {
		return c.store.EnqueueWebhooks(ctx, org, webhooks.Denied, s)
	}}
}

// sendWebhooks delivers until ctx ends.
func (c *control) sendWebhooks(ctx context.Context) {
	if c.sender == nil {
		return
	}
	c.running.Go(func() { c.denials.Run(ctx) })
	if err := c.sender.Run(ctx); err != nil {
		c.log.Error("webhooks are not sent any more", "err", err)
	}
}

// attempts is the sender as the API knows it.
func (c *control) attempts() api.Webhooks {
	if c.sender == nil {
		return nil
	}
	return c.sender
}
