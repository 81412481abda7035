package store

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"time"
)

// A Remembered is the answer to an earlier request with the same idempotency key.
type Remembered struct {
	Status int
	Header string // JSON, the caller's own form
	Body   []byte // nil: it held a value that is shown once
}

var (
	// ErrInProgress says that the first request with the key has not been answered yet.
	ErrInProgress = errors.New("a request with this idempotency key is being worked on")
	// ErrOtherRequest says that the key was used for another request.
	ErrOtherRequest = errors.New("the idempotency key was used for another request")
)

// Begin claims an idempotency key. nil, nil: the caller is the first and must call Finish or Abandon. Keys older than keep are free again.
func (s *Store) Begin(ctx context.Context, org, key string, request []byte, keep time.Duration) (*Remembered, error) {
	now := s.now().UTC()
	_, err := s.write.ExecContext(ctx, `DELETE FROM idempotency WHERE org_id = $1 AND key = $2 AND created_at < $3`, org, key, micros(s.earliest().Add(-keep)))
	if err != nil {
		return nil, wrap(err, "claiming an idempotency key")
	}
	res, err := s.write.ExecContext(ctx, `INSERT INTO idempotency (org_id, key, request_hash, created_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (org_id, key) DO NOTHING`, org, key, request, micros(now))
	if err != nil {
		return nil, wrap(err, "claiming an idempotency key")
	}
	if n, err := res.RowsAffected(); err != nil || n == 1 {
		return nil, wrap(err, "claiming an idempotency key")
	}
	var m Remembered
	var hash []byte
	var done int64
	err = s.write.QueryRowContext(ctx, `SELECT request_hash, done, status, header, body FROM idempotency WHERE org_id = $1 AND key = $2`, org, key).
		Scan(&hash, &done, &m.Status, &m.Header, &m.Body)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, ErrInProgress // given back between the two questions; the client asks again
	case err != nil:
		return nil, wrap(err, "reading an idempotency key")
	case !bytes.Equal(hash, request):
		return nil, ErrOtherRequest
	case done == 0:
		return nil, ErrInProgress
	}
	return &m, nil
}

// Finish keeps the answer.
func (s *Store) Finish(ctx context.Context, org, key string, m Remembered) error {
	res, err := s.write.ExecContext(ctx, `UPDATE idempotency SET done = 1, status = $3, header = $4, body = $5 WHERE org_id = $1 AND key = $2 AND done = 0`,
		org, key, m.Status, m.Header, m.Body)
	return wrap(one(res, err, ErrNotFound), "keeping an answer")
}

// Abandon gives the key back: nothing was done.
func (s *Store) Abandon(ctx context.Context, org, key string) error {
	_, err := s.write.ExecContext(ctx, `DELETE FROM idempotency WHERE org_id = $1 AND key = $2 AND done = 0`, org, key)
	return wrap(err, "giving back an idempotency key")
}
