package api

import (
	"context"
	"errors"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
)

// deleteRow takes a row of the org's away that no edge and no ingress has to know of, with its audit entry; kind is what the refusal calls
// it where there is none.
func (s *Server) deleteRow(ctx context.Context, c *caller, kind, id string, action audit.Action, remove func(*store.Tx, context.Context, string) error) (*success, error) {
	_, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) error {
		if err := remove(tx, ctx, id); err != nil {
			return err
		}
		return tx.Record(ctx, action, id, nil)
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound(kind)
	}
	if err != nil {
		return nil, err
	}
	return succeeded(), nil
}
