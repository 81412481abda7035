package authorities

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"time"

	"portreeve.dev/egress/ca"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
)

// serial is a certificate's number as it is shown and asked for.
func serial(n *big.Int) string { return fmt.Sprintf("%032x", n) }

// Trust returns the roots that the org's sandboxes trust, in PEM: the one that signs comes first.
func (s *Service) Trust(ctx context.Context, org string) ([]byte, error) {
	all, err := s.roots(ctx, org)
	if err != nil {
		return nil, err
	}
	return trusted(all), nil
}

func trusted(all []store.Root) []byte {
	var out []byte
	for _, signs := range []bool{true, false} {
		for _, r := range all {
			if r.State.Trusted() && (r.State == store.RootSigning) == signs {
				out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate})...)
			}
		}
	}
	return out
}

// Check is called with what a sandbox was given when it was made: if that is no more what it should trust, it is told.
func (s *Service) Check(ctx context.Context, org string, given []byte) {
	if now, err := s.Trust(ctx, org); err != nil || !bytes.Equal(now, given) {
		s.tell(org)
	}
}

// List signs the list of what a root of the org took back, in DER; ca.ErrNoList when no root that is trusted has the identifier.
func (s *Service) List(ctx context.Context, org, id string) ([]byte, error) {
	all, err := s.Store.Roots(ctx, org)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if !r.State.Trusted() {
			continue
		}
		root, err := s.open(r)
		if err != nil {
			return nil, err
		}
		if root.ID() != id {
			continue
		}
		revoked, err := s.revoked(ctx, org, r.Version)
		if err != nil {
			return nil, err
		}
		return root.List(revoked, s.Now())
	}
	return nil, ca.ErrNoList
}

func (s *Service) revoked(ctx context.Context, org string, root int64) (all []ca.Revocation, err error) {
	signed, err := s.Store.Intermediates(ctx, org, s.Now())
	for _, m := range signed {
		if n, ok := new(big.Int).SetString(m.Serial, 16); ok && m.Root == root && !m.RevokedAt.IsZero() {
			all = append(all, ca.Revocation{Serial: n, Time: m.RevokedAt})
		}
	}
	return all, err
}

// Revoke takes an intermediate back: it is on the list of its root, and edges ask for another at once. store.ErrNotFound when the
// org has none of that serial that lives.
func (s *Service) Revoke(ctx context.Context, by store.By, serial string) (revision int64, err error) {
	if raw, err := hex.DecodeString(serial); err != nil || len(raw) != 16 {
		return 0, fmt.Errorf("intermediate %q: %w", serial, store.ErrNotFound)
	}
	return s.change(ctx, by, audit.AuthorityRevoke, map[string]string{"serial": serial}, func(tx *store.Tx) error { return tx.RevokeIntermediate(ctx, serial) })
}

// tell notes that running sandboxes of an org must learn whom to trust.
func (s *Service) tell(org string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.untold[org] = true
}

// told takes the orgs of which sandboxes must learn.
func (s *Service) told() (orgs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for org := range s.untold {
		orgs = append(orgs, org)
	}
	clear(s.untold)
	return orgs
}

// pass tells the node. Whoever was not reached is tried again at the next step.
func (s *Service) pass(ctx context.Context) (err error) {
	for _, org := range s.told() {
		pem, failed := s.Trust(ctx, org)
		if failed == nil {
			failed = s.Node.Trust(ctx, org, pem)
		}
		if failed != nil {
			s.tell(org)
			err = errors.Join(err, fmt.Errorf("telling the sandboxes of %q whom to trust: %w", org, failed))
		}
	}
	return err
}

// settle is how much later than a root a sandbox must have been made to have got it from its beginning: two changes at once may
// be written in another order than they began.
const settle = 5 * time.Second

// waiting counts the sandboxes that may hold programs which don't trust a root.
func (s *Service) waiting(ctx context.Context, r store.Root) (int, error) {
	return s.Store.SandboxesBefore(ctx, r.Org, r.CreatedAt.Add(settle))
}
