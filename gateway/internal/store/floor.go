package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

// A FloorExemption is a part of the soft floor that a principal of the platform opened. It is of no org, and never changed: another
// one takes its place.
type FloorExemption struct {
	ID string
	policies.Exemption
	Note      string // why, in its maker's words
	Org       string // whose key made it; its entries are in that org's audit log
	CreatedBy string
	CreatedAt time.Time
}

// CreateFloorExemption opens a part of the floor, under a new revision; ErrLimit when there are limit exemptions, ErrNotPlatform for a
// principal of an org. The caller has had it checked against the hard floor.
func (tx *Tx) CreateFloorExemption(ctx context.Context, e FloorExemption, limit int) (FloorExemption, error) {
	if err := tx.platform(ctx); err != nil {
		return e, fmt.Errorf("opening the floor: %w", err)
	}
	have, err := tx.FloorExemptions(ctx)
	if err != nil {
		return e, err
	}
	if len(have) >= limit {
		return e, fmt.Errorf("opening the floor: there are %d exemptions: %w", len(have), ErrLimit)
	}
	e.Org, e.CreatedBy, e.CreatedAt = tx.Org(), tx.by.Principal.ID, tx.now
	if e.Ports == nil {
		e.Ports = []uint16{}
	}
	ports, err := json.Marshal(e.Ports)
	if err != nil {
		return e, err
	}
	orgs, err := json.Marshal(e.Orgs)
	if err != nil {
		return e, err
	}
	_, err = tx.q.ExecContext(ctx, `INSERT INTO floor_exemptions (id, cidr, ports, orgs, note, org_id, created_by, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`,
		e.ID, e.CIDR.String(), string(ports), string(orgs), e.Note, e.Org, e.CreatedBy, micros(e.CreatedAt), optional(e.ExpiresAt))
	return e, wrap(err, "opening the floor by %q", e.ID)
}

// DeleteFloorExemption closes what an exemption opened, under a new revision, and returns what it was; ErrNotPlatform for a principal of
// an org.
func (tx *Tx) DeleteFloorExemption(ctx context.Context, id string) (FloorExemption, error) {
	if err := tx.platform(ctx); err != nil {
		return FloorExemption{}, fmt.Errorf("closing the floor: %w", err)
	}
	return tx.removeFloorExemption(ctx, id, `DELETE FROM floor_exemptions WHERE id = $1`)
}

// EndFloorExemption is DeleteFloorExemption by a part of ours, for one that was made within the change's org and has ended; ErrNotFound
// for another.
func (tx *Tx) EndFloorExemption(ctx context.Context, id string) (FloorExemption, error) {
	if _, err := tx.Revision(ctx); err != nil {
		return FloorExemption{}, err
	}
	return tx.removeFloorExemption(ctx, id, `DELETE FROM floor_exemptions WHERE id = $1 AND org_id = $2 AND expires_at <= $3`, tx.Org(), micros(tx.now))
}

func (tx *Tx) removeFloorExemption(ctx context.Context, id, statement string, more ...any) (FloorExemption, error) {
	e, err := scanFloorExemption(tx.q.QueryRowContext(ctx, floorColumns+` WHERE id = $1`, id))
	if err != nil {
		return e, wrap(err, "reading floor exemption %q", id)
	}
	res, err := tx.q.ExecContext(ctx, statement, append([]any{id}, more...)...)
	return e, wrap(one(res, err, ErrNotFound), "closing floor exemption %q", id)
}

// platform lets none through but a principal above the orgs, and makes the changes of the platform wait for each other: they are of no
// org that could be locked.
func (tx *Tx) platform(ctx context.Context) error {
	if !tx.by.Principal.Has(sso.ScopePlatform) {
		return ErrNotPlatform
	}
	_, err := tx.Revision(ctx)
	return err
}

// FloorExemptions lists all, the oldest first, also those that have ended and wait to be taken away.
func (r reads) FloorExemptions(ctx context.Context) ([]FloorExemption, error) {
	all, err := list(ctx, r.q, scanFloorExemption, floorColumns+` ORDER BY created_at, id`)
	return all, wrap(err, "listing floor exemptions")
}

const floorColumns = `SELECT id, cidr, ports, orgs, note, org_id, created_by, created_at, expires_at FROM floor_exemptions`

func scanFloorExemption(row rowScanner) (FloorExemption, error) {
	var e FloorExemption
	var cidr, ports, orgs string
	var created int64
	var expires sql.NullInt64
	if err := row.Scan(&e.ID, &cidr, &ports, &orgs, &e.Note, &e.Org, &e.CreatedBy, &created, &expires); err != nil {
		return e, err
	}
	e.CreatedAt, e.ExpiresAt = fromMicros(created), fromOptional(expires)
	var err error
	if e.CIDR, err = netip.ParsePrefix(cidr); err == nil {
		err = errors.Join(json.Unmarshal([]byte(ports), &e.Ports), json.Unmarshal([]byte(orgs), &e.Orgs))
	}
	if err != nil {
		return e, fmt.Errorf("floor exemption %q: %w", e.ID, err)
	}
	return e, nil
}
