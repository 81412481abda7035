package store

import (
	"context"
	"fmt"
	"time"

	"portreeve.dev/sso"
)

// An Org owns everything else.
type Org struct {
	ID        string
	Name      string
	Slug      string
	Plan      string
	CreatedAt time.Time
}

// A User is a human of an org.
type User struct {
	ID        string
	Org       string
	Email     string
	Role      string // owner, admin, member
	CreatedAt time.Time
}

// CreateOrg makes the org of a registration, whose principal is the setup token's, and its settings and empty ceiling.
func (tx *Tx) CreateOrg(ctx context.Context, name, slug string) (Org, error) {
	if tx.by.Principal.Kind != sso.KindSetup {
		return Org{}, fmt.Errorf("creating org %q: %w", slug, ErrNoPrincipal)
	}
	o := Org{ID: tx.Org(), Name: name, Slug: slug, Plan: "self-hosted", CreatedAt: tx.now}
	_, err := tx.q.ExecContext(ctx, `INSERT INTO orgs (id, name, slug, plan, created_at) VALUES ($1, $2, $3, $4, $5)`,
		o.ID, o.Name, o.Slug, o.Plan, micros(o.CreatedAt))
	if err != nil {
		return Org{}, wrap(err, "creating org %q", slug)
	}
	_, err = tx.q.ExecContext(ctx, `INSERT INTO settings (org_id, version) VALUES ($1, 0)`, o.ID)
	return o, wrap(err, "creating settings of %q", slug)
}

// Orgs lists every org. It is for the feed and for start-up, never for an answer.
func (r reads) Orgs(ctx context.Context) ([]Org, error) {
	all, err := list(ctx, r.q, scanOrg, `SELECT id, name, slug, plan, created_at FROM orgs ORDER BY id`)
	return all, wrap(err, "listing orgs")
}

// Org returns one org.
func (r reads) Org(ctx context.Context, id string) (Org, error) {
	o, err := scanOrg(r.q.QueryRowContext(ctx, `SELECT id, name, slug, plan, created_at FROM orgs WHERE id = $1`, id))
	return o, wrap(err, "reading org %q", id)
}

func scanOrg(row rowScanner) (Org, error) {
	var o Org
	var at int64
	err := row.Scan(&o.ID, &o.Name, &o.Slug, &o.Plan, &at)
	o.CreatedAt = fromMicros(at)
	return o, err
}

// CreateUser adds a human to the org.
func (tx *Tx) CreateUser(ctx context.Context, email, role string) (User, error) {
	u := User{ID: NewID("usr"), Org: tx.Org(), Email: email, Role: role, CreatedAt: tx.now}
	_, err := tx.q.ExecContext(ctx, `INSERT INTO users (id, org_id, email, role, created_at) VALUES ($1, $2, $3, $4, $5)`,
		u.ID, u.Org, u.Email, u.Role, micros(u.CreatedAt))
	return u, wrap(err, "creating a user")
}

// UseSetupToken marks a setup token as used; ErrConflict when it already was.
func (tx *Tx) UseSetupToken(ctx context.Context, hash []byte) error {
	_, err := tx.q.ExecContext(ctx, `INSERT INTO setup_tokens (hash, used_at) VALUES ($1, $2)`, hash, micros(tx.now))
	return wrap(err, "using a setup token")
}
