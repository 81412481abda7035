package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"portreeve.dev/policies/inbound"
)

// An IngressPolicy is what an org allows of tunnels. Version 0: it set nothing.
type IngressPolicy struct {
	inbound.Policy
	Version int64
}

// IngressPolicy returns the org's, or the default where it set none.
func (r reads) IngressPolicy(ctx context.Context, org string) (IngressPolicy, error) {
	var p IngressPolicy
	var text string
	err := r.q.QueryRowContext(ctx, `SELECT policy, version FROM ingress_policies WHERE org_id = $1`, org).Scan(&text, &p.Version)
	if err = wrap(err, "reading the ingress policy of %q", org); errors.Is(err, ErrNotFound) {
		return IngressPolicy{Policy: inbound.Default()}, nil
	}
	if err != nil {
		return p, err
	}
	p.Policy, err = readIngress(text)
	return p, err
}

// readIngress reads a stored policy; with an error it is the one that refuses everything.
func readIngress(text string) (inbound.Policy, error) {
	var p inbound.Policy
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return inbound.Policy{}, fmt.Errorf("reading an ingress policy: %w", err)
	}
	return p, nil
}

// PutIngressPolicy stores a policy if the stored version is still the expected one, or AnyVersion.
func (tx *Tx) PutIngressPolicy(ctx context.Context, p inbound.Policy, expected int64) (IngressPolicy, error) {
	current, err := tx.IngressPolicy(ctx, tx.Org())
	if err != nil {
		return current, err
	}
	next := IngressPolicy{p, current.Version}
	err = tx.putOwn(ctx, "ingress_policies", "policy", p, &next.Version, expected)
	return next, wrap(err, "storing the ingress policy of %q", tx.Org())
}

// A LiveTunnel is a tunnel with the policy of its sandbox.
type LiveTunnel struct {
	Tunnel
	Policy string // of the sandbox; empty is the ceiling alone
}

// LiveTunnels lists those of the org, by id.
func (r reads) LiveTunnels(ctx context.Context, org string, now time.Time) ([]LiveTunnel, error) {
	all, err := list(ctx, r.q, func(row rowScanner) (LiveTunnel, error) {
		var w tunnelRow
		var policy string
		err := row.Scan(append(w.into(), &policy)...)
		return LiveTunnel{w.tunnel(), policy}, err
	}, `SELECT `+tunnelColumns+`, s.policy FROM tunnels t JOIN sandboxes s ON s.id = t.sandbox_id AND s.org_id = t.org_id
		WHERE t.org_id = $1 AND t.deleted_at IS NULL AND t.expires_at > $2 AND s.ended_at IS NULL ORDER BY t.id`, org, micros(now))
	return all, wrap(err, "listing the tunnels of %q", org)
}

// ShortenTunnel has a tunnel of the org end at a time before its own; ErrNotFound when there is no live one, or it ends before that.
func (tx *Tx) ShortenTunnel(ctx context.Context, id string, end time.Time) error {
	res, err := tx.q.ExecContext(ctx, `UPDATE tunnels SET expires_at = $3 WHERE org_id = $1 AND id = $2 AND deleted_at IS NULL AND expires_at > $3`,
		tx.Org(), id, micros(end))
	return wrap(one(res, err, ErrNotFound), "shortening tunnel %q", id)
}
