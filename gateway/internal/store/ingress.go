package store

import (
	"context"
	"encoding/json"
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
	text, version, err := r.own(ctx, "ingress_policies", "policy", org)
	if err != nil {
		return IngressPolicy{}, err // refuses everything
	}
	if version == 0 {
		return IngressPolicy{Policy: inbound.Default()}, nil
	}
	p, err := readIngress(text)
	return IngressPolicy{p, version}, err
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
	version, err := tx.putOwn(ctx, "ingress_policies", "policy", p, expected)
	return IngressPolicy{p, version}, err
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
