package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"portreeve.dev/sso"
)

// An AccessState is how a request for access stands.
//
//	open -> approved -> expired
//	  +---> denied
//	  +---> expired: nobody decided, or its sandbox ended
type AccessState string

const (
	AccessOpen     AccessState = "open"
	AccessApproved AccessState = "approved"
	AccessDenied   AccessState = "denied"
	AccessExpired  AccessState = "expired" // never stored: it is told from the time
)

// An AccessRequest is a row: a sandbox asked for access to a host.
type AccessRequest struct {
	ID        string
	Org       string
	Sandbox   string
	Host      string // in normal form
	Port      uint16
	Protocol  string
	Methods   []string
	Paths     []string
	Width     string // host or url
	Why       string // the sandbox's word
	Lasts     time.Duration
	State     AccessState
	CreatedAt time.Time
	ExpiresAt time.Time // of an open one, when nobody decides any more; of an approved one, of the access
	DecidedAt time.Time
	DecidedBy string
	Reason    string // the approver's word
	Rule      string // id of the rule that was added
	Layers    []string
}

// AccessLimits bound the open requests.
type AccessLimits struct {
	PerSandbox int
	PerOrg     int
	// Again is for how long the answer to a denied request is the answer to its equal.
	Again time.Duration
}

var (
	// ErrOrgLimit is ErrLimit for the whole org.
	ErrOrgLimit = fmt.Errorf("all of it: %w", ErrLimit)
	// ErrDecided says that a request is not open any more.
	ErrDecided = errors.New("the request is decided, or its time is over")
	// ErrSandboxDecides says that a sandbox, or a part of ours on its behalf, wanted to decide a request.
	ErrSandboxDecides = errors.New("a sandbox decides no request")
	// ErrJoined says that there is an equal request already.
	ErrJoined = errors.New("there is an equal request")
)

// CreateAccessRequest enters a request of a live sandbox of the org. When there is an equal open one, or one that was just denied,
// that is returned with ErrJoined: then nothing is to be written.
func (tx *Tx) CreateAccessRequest(ctx context.Context, r AccessRequest, l AccessLimits) (AccessRequest, error) {
	box, err := tx.Sandbox(ctx, tx.Org(), r.Sandbox)
	if err != nil {
		return r, err
	}
	r.ID, r.Org, r.State, r.CreatedAt = NewID("req"), tx.Org(), AccessOpen, tx.now
	if r.ExpiresAt = r.ExpiresAt.UTC().Truncate(time.Microsecond); box.ExpiresAt.Before(r.ExpiresAt) {
		r.ExpiresAt = box.ExpiresAt
	}
	methods, paths, err := r.lists()
	if err != nil {
		return r, err
	}
	equal, err := scanAccess(tx.q.QueryRowContext(ctx, accessColumns+` WHERE a.org_id = $1 AND a.sandbox_id = $2 AND a.host = $3 AND a.port = $4 AND a.protocol = $5
		AND a.width = $6 AND a.methods = $7 AND a.paths = $8 AND (a.state = 'open' AND a.expires_at > $9 OR a.state = 'denied' AND a.decided_at > $10)
		ORDER BY a.created_at DESC LIMIT 1`,
		r.Org, r.Sandbox, r.Host, int64(r.Port), r.Protocol, r.Width, methods, paths, micros(tx.now), micros(tx.now.Add(-l.Again))), tx.now)
	if err == nil {
		return equal, fmt.Errorf("request %q: %w", equal.ID, ErrJoined)
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return r, wrap(err, "looking for a request of %q", r.Sandbox)
	}
	if err := tx.roomForAccess(ctx, r.Sandbox, l); err != nil {
		return r, err
	}
	_, err = tx.q.ExecContext(ctx, `INSERT INTO access_requests (id, org_id, sandbox_id, host, port, protocol, methods, paths, width, why, lasts, state, created_at, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)`,
		r.ID, r.Org, r.Sandbox, r.Host, int64(r.Port), r.Protocol, methods, paths, r.Width, r.Why, int64(r.Lasts/time.Second), string(r.State), micros(r.CreatedAt), micros(r.ExpiresAt))
	tx.requests = true
	return r, wrap(err, "entering a request of %q", r.Sandbox)
}

func (r *AccessRequest) lists() (methods, paths string, err error) {
	m, err := json.Marshal(append([]string{}, r.Methods...))
	if err != nil {
		return "", "", err
	}
	p, err := json.Marshal(append([]string{}, r.Paths...))
	return string(m), string(p), err
}

// roomForAccess counts the open requests. The org is locked, so no other request comes between.
func (tx *Tx) roomForAccess(ctx context.Context, sandbox string, l AccessLimits) error {
	var mine, all int
	err := tx.q.QueryRowContext(ctx, `SELECT COALESCE(SUM(CASE WHEN a.sandbox_id = $2 THEN 1 ELSE 0 END), 0), COUNT(*)
		FROM access_requests a JOIN sandboxes s ON s.id = a.sandbox_id
		WHERE a.org_id = $1 AND a.state = 'open' AND a.expires_at > $3 AND s.ended_at IS NULL`, tx.Org(), sandbox, micros(tx.now)).Scan(&mine, &all)
	switch {
	case err != nil:
		return wrap(err, "counting requests of %q", sandbox)
	case mine >= l.PerSandbox:
		return fmt.Errorf("sandbox %q has %d open requests: %w", sandbox, mine, ErrLimit)
	case all >= l.PerOrg:
		return fmt.Errorf("org %q has %d open requests: %w", tx.Org(), all, ErrOrgLimit)
	}
	return nil
}

// DecideAccessRequest closes an open request: to approved, with what was added and until when, or to denied. ErrDecided when it
// is not open any more. Whoever asked never decides.
func (tx *Tx) DecideAccessRequest(ctx context.Context, r AccessRequest) (AccessRequest, error) {
	if k := tx.by.Principal.Kind; k != sso.KindKey {
		return r, fmt.Errorf("deciding request %q as %s: %w", r.ID, tx.by.Principal, ErrSandboxDecides)
	}
	was, err := tx.AccessRequest(ctx, tx.Org(), r.ID, tx.now)
	if err != nil {
		return r, err
	}
	if was.State != AccessOpen || r.State != AccessApproved && r.State != AccessDenied {
		return was, fmt.Errorf("request %q is %s: %w", r.ID, was.State, ErrDecided)
	}
	r.DecidedAt, r.DecidedBy, r.ExpiresAt = tx.now, tx.by.Principal.ID, r.ExpiresAt.UTC().Truncate(time.Microsecond)
	methods, paths, err := r.lists()
	if err != nil {
		return r, err
	}
	layers, err := json.Marshal(append([]string{}, r.Layers...))
	if err != nil {
		return r, err
	}
	res, err := tx.q.ExecContext(ctx, `UPDATE access_requests SET state = $3, width = $4, methods = $5, paths = $6, expires_at = $7, decided_at = $8, decided_by = $9,
		reason = $10, rule_id = $11, layers = $12 WHERE org_id = $1 AND id = $2 AND state = 'open'`,
		tx.Org(), r.ID, string(r.State), r.Width, methods, paths, micros(r.ExpiresAt), micros(r.DecidedAt), r.DecidedBy, r.Reason, r.Rule, string(layers))
	tx.requests = true
	return r, wrap(one(res, err, ErrDecided), "deciding request %q", r.ID)
}

// An AccessFilter narrows a list of requests; zero fields don't.
type AccessFilter struct {
	Sandbox string
	State   AccessState
	Limit   int // default 100
}

// AccessRequest returns one request of the org, as it stands at now.
func (r reads) AccessRequest(ctx context.Context, org, id string, now time.Time) (AccessRequest, error) {
	a, err := scanAccess(r.q.QueryRowContext(ctx, accessColumns+` WHERE a.org_id = $1 AND a.id = $2`, org, id), now)
	return a, wrap(err, "reading request %q", id)
}

// AccessRequests lists requests of the org, newest first, as they stand at now.
func (r reads) AccessRequests(ctx context.Context, org string, f AccessFilter, now time.Time) ([]AccessRequest, error) {
	if f.Limit <= 0 {
		f.Limit = 100
	}
	state := map[AccessState]string{
		AccessOpen:     ` AND a.state = 'open' AND a.expires_at > $2 AND s.ended_at IS NULL`,
		AccessApproved: ` AND a.state = 'approved' AND a.expires_at > $2`,
		AccessDenied:   ` AND a.state = 'denied' AND CAST($2 AS BIGINT) > 0`,
		AccessExpired:  ` AND (a.expires_at <= $2 AND a.state <> 'denied' OR a.state = 'open' AND s.ended_at IS NOT NULL)`,
		"":             ` AND CAST($2 AS BIGINT) > 0`,
	}[f.State]
	all, err := list(ctx, r.q, func(row rowScanner) (AccessRequest, error) { return scanAccess(row, now) },
		accessColumns+` WHERE a.org_id = $1`+state+` AND ($3 = '' OR a.sandbox_id = $3) ORDER BY a.created_at DESC, a.id DESC LIMIT $4`,
		org, micros(now), f.Sandbox, f.Limit)
	return all, wrap(err, "listing requests of %q", org)
}

const accessColumns = `SELECT a.id, a.org_id, a.sandbox_id, a.host, a.port, a.protocol, a.methods, a.paths, a.width, a.why, a.lasts, a.state, a.created_at, a.expires_at,
	a.decided_at, a.decided_by, a.reason, a.rule_id, a.layers, s.ended_at FROM access_requests a JOIN sandboxes s ON s.id = a.sandbox_id`

func scanAccess(row rowScanner, now time.Time) (AccessRequest, error) {
	var a AccessRequest
	var port, lasts, created, expires int64
	var decided, ended sql.NullInt64
	var methods, paths, layers string
	err := row.Scan(&a.ID, &a.Org, &a.Sandbox, &a.Host, &port, &a.Protocol, &methods, &paths, &a.Width, &a.Why, &lasts, &a.State, &created, &expires,
		&decided, &a.DecidedBy, &a.Reason, &a.Rule, &layers, &ended)
	if err != nil {
		return a, err
	}
	a.Port, a.Lasts = uint16(port), time.Duration(lasts)*time.Second
	a.CreatedAt, a.ExpiresAt, a.DecidedAt = fromMicros(created), fromMicros(expires), fromOptional(decided)
	over := !now.Before(a.ExpiresAt)
	if a.State == AccessOpen && (over || ended.Valid) || a.State == AccessApproved && over {
		a.State = AccessExpired
	}
	return a, errors.Join(json.Unmarshal([]byte(methods), &a.Methods), json.Unmarshal([]byte(paths), &a.Paths), json.Unmarshal([]byte(layers), &a.Layers))
}

// ForgetAccessRequests deletes what was over before a time, of all orgs, and says how many.
func (s *Store) ForgetAccessRequests(ctx context.Context, before time.Time) (int64, error) {
	res, err := s.write.ExecContext(ctx, `DELETE FROM access_requests WHERE expires_at < $1 AND created_at < $1`, micros(before))
	if err != nil {
		return 0, wrap(err, "deleting old requests")
	}
	n, err := res.RowsAffected()
	return n, wrap(err, "deleting old requests")
}

// AccessChanged returns a channel that is closed when a request is next entered or decided by this process.
func (s *Store) AccessChanged() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accessChanged
}

func (s *Store) announceAccess() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.accessChanged)
	s.accessChanged = make(chan struct{})
}
