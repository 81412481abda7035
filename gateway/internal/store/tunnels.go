package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"portreeve.dev/policies/inbound"
)

// A Tunnel is a row: a public name for one port of a sandbox.
type Tunnel struct {
	ID        string
	Org       string
	Sandbox   string
	Host      string // in normal form, never used for another tunnel
	Port      uint16
	Public    bool
	TokenHash []byte // SHA-256; nil when public
	AuthEpoch uint64
	CreatedBy string
	CreatedAt time.Time
	ExpiresAt time.Time
	DeletedAt time.Time // zero: not deleted
}

// A Route is a tunnel with what its sandbox is now.
type Route struct {
	Tunnel
	Status     SandboxStatus
	Generation uint64
	SandboxEnd time.Time
	// AnonymousWakes is how often a minute callers without a credential may wake sandboxes of the org.
	AnonymousWakes int
}

// CreateTunnel keeps a tunnel of a sandbox of the org; ErrLimit when the sandbox has limit live ones, ErrConflict when the host
// was ever used.
func (tx *Tx) CreateTunnel(ctx context.Context, t Tunnel, limit int) (Tunnel, error) {
	t.Org, t.CreatedBy, t.CreatedAt, t.AuthEpoch = tx.Org(), tx.by.Principal.ID, tx.now, 1
	t.ExpiresAt = t.ExpiresAt.UTC().Truncate(time.Microsecond)
	if _, err := tx.Sandbox(ctx, t.Org, t.Sandbox); err != nil {
		return t, err
	}
	var live int
	err := tx.q.QueryRowContext(ctx, `SELECT count(*) FROM tunnels WHERE sandbox_id = $1 AND deleted_at IS NULL AND expires_at > $2`,
		t.Sandbox, micros(tx.now)).Scan(&live)
	if err != nil {
		return t, wrap(err, "counting tunnels of %q", t.Sandbox)
	}
	if live >= limit {
		return t, fmt.Errorf("creating a tunnel of %q: it has %d: %w", t.Sandbox, live, ErrLimit)
	}
	_, err = tx.q.ExecContext(ctx, `INSERT INTO tunnels (id, org_id, sandbox_id, host, port, public, token_hash, auth_epoch, created_by, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
		t.ID, t.Org, t.Sandbox, t.Host, int64(t.Port), flag(t.Public), t.TokenHash, int64(t.AuthEpoch), t.CreatedBy, micros(t.CreatedAt), micros(t.ExpiresAt))
	return t, wrap(err, "creating a tunnel of %q", t.Sandbox)
}

// DeleteTunnel ends a tunnel of the org's sandbox; ErrNotFound when there is no live one. One that has ended only by a clock that is ahead is
// ended, too: it would come back with the clock.
func (tx *Tx) DeleteTunnel(ctx context.Context, sandbox, id string) error {
	res, err := tx.q.ExecContext(ctx, `UPDATE tunnels SET deleted_at = $4 WHERE org_id = $1 AND sandbox_id = $2 AND id = $3 AND deleted_at IS NULL AND expires_at > $5`,
		tx.Org(), sandbox, id, micros(tx.now), micros(tx.earliest))
	return wrap(one(res, err, ErrNotFound), "deleting tunnel %q", id)
}

// Tunnels lists the live tunnels of a sandbox of the org, oldest first.
func (r reads) Tunnels(ctx context.Context, org, sandbox string, now time.Time) ([]Tunnel, error) {
	all, err := list(ctx, r.q, scanTunnel, `SELECT `+tunnelColumns+` FROM tunnels t
		WHERE t.org_id = $1 AND t.sandbox_id = $2 AND t.deleted_at IS NULL AND t.expires_at > $3 ORDER BY t.created_at, t.id`, org, sandbox, micros(now))
	return all, wrap(err, "listing tunnels of %q", sandbox)
}

// Routes lists every tunnel, of all orgs, that lives or ended after since. It is for ingress.
func (r reads) Routes(ctx context.Context, since time.Time) ([]Route, error) {
	all, err := list(ctx, r.q, scanRoute, `SELECT `+tunnelColumns+`, s.status, s.generation, s.expires_at, p.policy
		FROM tunnels t JOIN sandboxes s ON s.id = t.sandbox_id AND s.org_id = t.org_id LEFT JOIN ingress_policies p ON p.org_id = t.org_id
		WHERE t.expires_at > $1 AND (t.deleted_at IS NULL OR t.deleted_at > $1) ORDER BY t.id`, micros(since))
	return all, wrap(err, "listing routes")
}

// PublicSandboxes lists the sandboxes of the org that have a live public tunnel, with their policies.
func (r reads) PublicSandboxes(ctx context.Context, org string, now time.Time) ([]SandboxPolicy, error) {
	all, err := list(ctx, r.q, func(row rowScanner) (SandboxPolicy, error) {
		var p SandboxPolicy
		err := row.Scan(&p.Sandbox, &p.Policy)
		return p, err
	}, `SELECT s.id, s.policy FROM sandboxes s WHERE s.org_id = $1 AND s.ended_at IS NULL AND EXISTS
		(SELECT 1 FROM tunnels t WHERE t.sandbox_id = s.id AND t.public = 1 AND t.deleted_at IS NULL AND t.expires_at > $2) ORDER BY s.id`, org, micros(now))
	return all, wrap(err, "listing sandboxes of %q with public tunnels", org)
}

const tunnelColumns = `t.id, t.org_id, t.sandbox_id, t.host, t.port, t.public, t.token_hash, t.auth_epoch, t.created_by, t.created_at, t.expires_at, t.deleted_at`

// A tunnelRow takes the columns as they come.
type tunnelRow struct {
	t                   Tunnel
	port, public, epoch int64
	created, expires    int64
	deleted             sql.NullInt64
}

func (w *tunnelRow) into() []any {
	return []any{&w.t.ID, &w.t.Org, &w.t.Sandbox, &w.t.Host, &w.port, &w.public, &w.t.TokenHash, &w.epoch, &w.t.CreatedBy, &w.created, &w.expires, &w.deleted}
}

func (w *tunnelRow) tunnel() Tunnel {
	w.t.Port, w.t.Public, w.t.AuthEpoch = uint16(w.port), w.public != 0, uint64(w.epoch)
	w.t.CreatedAt, w.t.ExpiresAt, w.t.DeletedAt = fromMicros(w.created), fromMicros(w.expires), fromOptional(w.deleted)
	return w.t
}

func scanTunnel(row rowScanner) (Tunnel, error) {
	var w tunnelRow
	err := row.Scan(w.into()...)
	return w.tunnel(), err
}

func scanRoute(row rowScanner) (Route, error) {
	var w tunnelRow
	var r Route
	var generation, end int64
	var text sql.NullString
	if err := row.Scan(append(w.into(), &r.Status, &generation, &end, &text)...); err != nil {
		return r, err
	}
	r.Tunnel, r.Generation, r.SandboxEnd = w.tunnel(), uint64(generation), fromMicros(end)
	policy := inbound.Default()
	if text.Valid {
		policy, _ = readIngress(text.String) // one that can't be read refuses, and is not felt by other orgs
	}
	r.AnonymousWakes = policy.AnonymousWakes
	return r, nil
}
