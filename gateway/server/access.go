package server

import (
	"context"
	"errors"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/sso"
)

// requestsKept is how long a request for access is kept after its end.
const requestsKept = 30 * 24 * time.Hour

// registerAccess is what edge may ask on behalf of a sandbox. The edge says who asks; what that sandbox may have is found here.
func (c *control) registerAccess() {
	mux := c.edge.Mux
	link.Handle(mux, role.ControlAsk, func(ctx context.Context, in role.AccessAsk) (egress.Access, error) {
		a, err := c.api.Ask(ctx, bindingOf(in.AboutSandbox), in.Ask)
		return a, coded(err)
	})
	link.Handle(mux, role.ControlAccess, func(ctx context.Context, in role.AccessQuery) (egress.Access, error) {
		a, err := c.api.Access(ctx, bindingOf(in.AboutSandbox), in.ID, min(in.Wait, role.AccessWait))
		return a, coded(err)
	})
	link.Handle(mux, role.ControlDecision, c.ownDecision)
	link.Handle(mux, role.ControlTrust, c.trustOf)
	link.Handle(mux, role.ControlRevoked, c.revokedOf)
	link.Handle(mux, role.ControlPause, c.pauseItself)
}

func bindingOf(a role.AboutSandbox) egress.Binding {
	return egress.Binding{Sandbox: a.Sandbox, Org: a.Org, Incarnation: a.Incarnation}
}

// coded lets a refusal keep its code, and everything else none: its text is for our log.
func coded(err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Status < 500 {
		return &link.Error{Code: p.Code, Message: p.Detail}
	}
	return err
}

// isOf reports whether the sandbox is the org's, in the store's words, and lives.
func (c *control) isOf(ctx context.Context, a role.AboutSandbox) error {
	box, err := c.store.Sandbox(ctx, a.Org, a.Sandbox)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && (box.Status.Ended() || box.Incarnation != a.Incarnation):
		return &link.Error{Code: role.CodeNotRunning, Message: "this sandbox does not run any more"}
	}
	return err
}

func (c *control) ownDecision(ctx context.Context, in role.DecisionQuery) (decisions.Decision, error) {
	if err := c.isOf(ctx, in.AboutSandbox); err != nil {
		return decisions.Decision{}, err
	}
	d, err := c.store.Decision(ctx, in.Org, in.ID)
	if errors.Is(err, store.ErrNotFound) { // whoever was just refused knows the id before it is here
		c.settle(ctx)
		d, err = c.store.Decision(ctx, in.Org, in.ID)
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && (d.Sandbox != in.Sandbox || d.Incarnation != in.Incarnation) {
		return decisions.Decision{}, &link.Error{Code: role.CodeNoDecision, Message: "there is no such decision of this sandbox"}
	}
	return d.Decision, err
}

func (c *control) trustOf(ctx context.Context, in role.AboutSandbox) (role.Trust, error) {
	if err := c.isOf(ctx, in); err != nil {
		return role.Trust{}, err
	}
	pem, err := c.authorities.Trust(ctx, in.Org)
	return role.Trust{PEM: string(pem)}, err
}

// pauseItself is a change of the sandbox's own: the audit log names it.
func (c *control) pauseItself(ctx context.Context, in role.AboutSandbox) (struct{}, error) {
	if err := c.isOf(ctx, in); err != nil {
		return struct{}{}, err
	}
	_, err := c.sandboxes.Pause(ctx, store.By{Principal: sso.Sandbox(in.Sandbox, in.Org)}, in.Sandbox)
	return struct{}{}, err
}

// forgetRequests deletes old requests for access, and what was delivered to webhooks, once an hour.
func (c *control) forgetRequests(ctx context.Context) {
	hourly := time.NewTicker(time.Hour)
	defer hourly.Stop()
	for {
		if _, err := c.store.ForgetAccessRequests(ctx, c.earliest().Add(-requestsKept)); err != nil && ctx.Err() == nil {
			c.log.Error("old requests for access could not be deleted", "err", err)
		}
		if err := c.store.ForgetWebhookDeliveries(ctx, c.earliest().Add(-deliveriesKept)); err != nil && ctx.Err() == nil {
			c.log.Error("old deliveries could not be deleted", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-hourly.C:
		}
	}
}
