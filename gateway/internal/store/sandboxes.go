package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"time"
)

// A SandboxStatus is one of the words of the API.
//
//	creating -> running <-> paused
//	    |          |           |
//	    +----------+-----------+--> terminating -> terminated
//	    +----------+-----------+--> error
type SandboxStatus string

const (
	Creating    SandboxStatus = "creating"
	Running     SandboxStatus = "running"
	Paused      SandboxStatus = "paused"
	Terminating SandboxStatus = "terminating"
	Terminated  SandboxStatus = "terminated"
	Failed      SandboxStatus = "error"
)

// Ended reports whether nothing can happen to the sandbox any more.
func (s SandboxStatus) Ended() bool { return s == Terminated || s == Failed }

// A SandboxSpec is what was asked for. It does not change.
type SandboxSpec struct {
	CPUs          string            `json:"cpus"`
	Memory        string            `json:"memory"`
	MilliCPU      int64             `json:"milli_cpu"`
	MemoryBytes   int64             `json:"memory_bytes"`
	WorkspaceSize int64             `json:"workspace_bytes"`
	Timeout       int64             `json:"timeout_seconds"`
	Env           map[string]string `json:"env,omitempty"`
	Template      string            `json:"template"`
	Isolation     string            `json:"isolation"`
	Labels        map[string]string `json:"labels,omitempty"`
}

// A SandboxKind says who runs a sandbox.
type SandboxKind string

const (
	Own      SandboxKind = "own"      // a node of ours
	Attached SandboxKind = "attached" // somebody else; its network alone is ours
)

// Metrics say how long the parts of a start took.
type Metrics struct {
	TotalMS  int64   `json:"total_ms"`
	CreateMS int64   `json:"create_ms"`
	ReadyMS  int64   `json:"ready_ms"`
	Phases   []Phase `json:"phases,omitempty"`
}

// A Phase is one part of a start.
type Phase struct {
	Name string `json:"name"`
	MS   int64  `json:"ms"`
}

// A Sandbox is a row. Version grows at each change and is what a change compares with.
type Sandbox struct {
	ID          string
	Org         string
	Kind        SandboxKind // Own where a create says none
	Status      SandboxStatus
	Reason      string          // why it is in error, or why it ended: out_of_memory, expired, ...
	Policy      string          // a named policy; "" is the ceiling alone
	Own         json.RawMessage // a list of its own, which only narrows; nil: none. Changed by SetOwnList alone
	OwnVersion  int64           // of that list; it goes on counting when there is none
	Spec        SandboxSpec
	Addr        string
	RunscID     string
	Incarnation uint64
	Generation  uint64
	MinRevision int64
	Metrics     Metrics
	Version     int64
	CreatedBy   string
	CreatedAt   time.Time
	UpdatedAt   time.Time
	ExpiresAt   time.Time
	EndedAt     time.Time
}

// CreateSandbox enters a sandbox of the org, unless it has limit live ones already (ErrLimit).
func (tx *Tx) CreateSandbox(ctx context.Context, b Sandbox, limit int) (Sandbox, error) {
	var live int
	err := tx.q.QueryRowContext(ctx, `SELECT count(*) FROM sandboxes WHERE org_id = $1 AND ended_at IS NULL`, tx.Org()).Scan(&live)
	if err != nil {
		return Sandbox{}, wrap(err, "counting sandboxes of %q", tx.Org())
	}
	if limit > 0 && live >= limit {
		return Sandbox{}, fmt.Errorf("creating a sandbox of %q: %w", tx.Org(), ErrLimit)
	}
	b.Org, b.Version, b.CreatedBy, b.CreatedAt, b.UpdatedAt = tx.Org(), 1, tx.by.Principal.ID, tx.now, tx.now
	b.ExpiresAt = b.ExpiresAt.UTC().Truncate(time.Microsecond)
	if b.Kind == "" {
		b.Kind = Own
	}
	if b.OwnVersion = 0; b.Own != nil {
		b.OwnVersion = 1
	}
	spec, err := json.Marshal(b.Spec)
	if err != nil {
		return Sandbox{}, err
	}
	_, err = tx.q.ExecContext(ctx, `INSERT INTO sandboxes
		(id, org_id, status, policy, own, own_version, spec, min_revision, version, created_by, created_at, updated_at, expires_at, kind)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
		b.ID, b.Org, string(b.Status), b.Policy, nullable(b.Own), b.OwnVersion, string(spec), b.MinRevision, b.Version, b.CreatedBy,
		micros(b.CreatedAt), micros(b.UpdatedAt), micros(b.ExpiresAt), string(b.Kind))
	if err != nil || b.Own == nil {
		return b, wrap(err, "creating sandbox %q", b.ID)
	}
	return b, tx.ownBounded(ctx, b.ID)
}

// UpdateSandbox writes the changing fields of b, but for its policy and own list, if its row still has the version that b was read with (ErrVersion otherwise).
func (tx *Tx) UpdateSandbox(ctx context.Context, b Sandbox) (Sandbox, error) {
	metrics, err := json.Marshal(b.Metrics)
	if err != nil {
		return Sandbox{}, err
	}
	b.UpdatedAt = tx.now
	if b.Status.Ended() && b.EndedAt.IsZero() {
		b.EndedAt = tx.now
	}
	res, err := tx.q.ExecContext(ctx, `UPDATE sandboxes SET status = $4, reason = $5, addr = $6, runsc_id = $7, incarnation = $8, generation = $9,
		min_revision = $10, metrics = $11, updated_at = $12, expires_at = $13, ended_at = $14, version = version + 1
		WHERE org_id = $1 AND id = $2 AND version = $3`,
		tx.Org(), b.ID, b.Version, string(b.Status), b.Reason, b.Addr, b.RunscID, int64(b.Incarnation), int64(b.Generation),
		b.MinRevision, string(metrics), micros(b.UpdatedAt), micros(b.ExpiresAt), optional(b.EndedAt))
	b.Version++
	return b, wrap(one(res, err, ErrVersion), "updating sandbox %q", b.ID)
}

// Sandbox returns one sandbox of the org.
func (r reads) Sandbox(ctx context.Context, org, id string) (Sandbox, error) {
	b, err := scanSandbox(r.q.QueryRowContext(ctx, sandboxColumns+` WHERE org_id = $1 AND id = $2`, org, id))
	return b, wrap(err, "reading sandbox %q", id)
}

// Sandboxes lists the org's sandboxes, newest first: all live ones, and those ended after since.
func (r reads) Sandboxes(ctx context.Context, org string, since time.Time, limit int) ([]Sandbox, error) {
	all, err := list(ctx, r.q, scanSandbox, sandboxColumns+` WHERE org_id = $1 AND (ended_at IS NULL OR ended_at >= $2)
		ORDER BY created_at DESC, id DESC LIMIT $3`, org, micros(since), limit)
	return all, wrap(err, "listing sandboxes of %q", org)
}

// LiveSandboxes lists every sandbox that has not ended, of all orgs. It is for the feed and for start-up, never for an answer.
func (r reads) LiveSandboxes(ctx context.Context) ([]Sandbox, error) {
	all, err := list(ctx, r.q, scanSandbox, sandboxColumns+` WHERE ended_at IS NULL ORDER BY org_id, id`)
	return all, wrap(err, "listing live sandboxes")
}

// OverdueAttached lists the attached sandboxes of all orgs whose end has come and that have not ended.
func (r reads) OverdueAttached(ctx context.Context, now time.Time) ([]Sandbox, error) {
	all, err := list(ctx, r.q, scanSandbox, sandboxColumns+` WHERE ended_at IS NULL AND kind = $1 AND expires_at <= $2`, string(Attached), micros(now))
	return all, wrap(err, "listing overdue sandboxes")
}

// AnySandbox returns a sandbox by its id alone, for events of a node, whose word names no org.
func (s *Store) AnySandbox(ctx context.Context, id string) (Sandbox, error) {
	b, err := scanSandbox(s.q.QueryRowContext(ctx, sandboxColumns+` WHERE id = $1`, id))
	return b, wrap(err, "reading sandbox %q", id)
}

// PolicyInUse reports whether a live sandbox of the org has the policy.
func (r reads) PolicyInUse(ctx context.Context, org, policy string) (bool, error) {
	var n int
	err := r.q.QueryRowContext(ctx, `SELECT count(*) FROM sandboxes WHERE org_id = $1 AND policy = $2 AND ended_at IS NULL`, org, policy).Scan(&n)
	return n > 0, wrap(err, "looking for sandboxes with policy %q", policy)
}

const sandboxColumns = `SELECT id, org_id, status, reason, policy, own, own_version, spec, addr, runsc_id, incarnation, generation, min_revision, metrics,
	version, created_by, created_at, updated_at, expires_at, ended_at, kind FROM sandboxes`

func scanSandbox(row rowScanner) (Sandbox, error) {
	var b Sandbox
	var spec, metrics string
	var incarnation, generation, created, updated, expires int64
	var ended sql.NullInt64
	var own sql.NullString
	err := row.Scan(&b.ID, &b.Org, &b.Status, &b.Reason, &b.Policy, &own, &b.OwnVersion, &spec, &b.Addr, &b.RunscID, &incarnation, &generation, &b.MinRevision,
		&metrics, &b.Version, &b.CreatedBy, &created, &updated, &expires, &ended, &b.Kind)
	if err != nil {
		return b, err
	}
	if own.Valid {
		b.Own = json.RawMessage(own.String)
	}
	b.Incarnation, b.Generation = uint64(incarnation), uint64(generation)
	b.CreatedAt, b.UpdatedAt, b.ExpiresAt, b.EndedAt = fromMicros(created), fromMicros(updated), fromMicros(expires), fromOptional(ended)
	if err := json.Unmarshal([]byte(spec), &b.Spec); err != nil {
		return b, fmt.Errorf("spec of sandbox %q: %w", b.ID, err)
	}
	return b, json.Unmarshal([]byte(metrics), &b.Metrics)
}
