package authorities

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"portreeve.dev/egress/ca"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/secrets/seal"
	"portreeve.dev/sso"
)

// A Node tells running sandboxes whom to trust. An error is that some of them may not know; the same call may be made again.
// Safe for concurrent use.
type Node interface {
	Trust(ctx context.Context, org string, pem []byte) error
}

// Config of a Service. The first three are needed.
type Config struct {
	Store   *store.Store
	Keyring *seal.Keyring
	Node    Node
	// Publish makes edges and nodes learn of a revision. It must not block. Default: nobody is told.
	Publish func(ctx context.Context, revision int64)
	Log     *slog.Logger     // default none
	Now     func() time.Time // default time.Now
	// Earliest is the earlier of Now and the machine's own clock, which sandboxes go by: certificates begin by it. Default Now.
	Earliest func() time.Time
}

// A Service keeps the authorities of all orgs. It is safe for concurrent use.
type Service struct {
	Config

	mu     sync.Mutex
	untold map[string]bool // orgs of which some running sandbox may not know whom to trust
	began  bool
}

// New starts nothing.
func New(c Config) (*Service, error) {
	if c.Store == nil || c.Keyring == nil || c.Node == nil {
		return nil, errors.New("authorities: store, keyring and node are all needed")
	}
	if c.Publish == nil {
		c.Publish = func(context.Context, int64) {}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Earliest == nil {
		c.Earliest = c.Now
	}
	return &Service{Config: c, untold: make(map[string]bool)}, nil
}

// record is what the sealed key of an org's root is bound to.
func record(org string, version int64) seal.Record {
	return seal.Record{Kind: "ca_key", Org: org, Version: version}
}

// roots returns those of an org, the newest first; the first one is made when it is needed first.
func (s *Service) roots(ctx context.Context, org string) ([]store.Root, error) {
	all, err := s.Store.Roots(ctx, org)
	if err != nil || len(all) > 0 {
		return all, err
	}
	by := store.By{Principal: sso.System("control", org)}
	first, err := s.newRoot(ctx, org, 1)
	if err != nil {
		return nil, err
	}
	first.State = store.RootSigning
	_, err = s.change(ctx, by, audit.AuthorityCreate, nil, func(tx *store.Tx) error { return tx.CreateRoot(ctx, first) })
	if err != nil && !errors.Is(err, store.ErrConflict) { // made by another call meanwhile
		return nil, err
	}
	return s.Store.Roots(ctx, org)
}

// newRoot makes one that is in no store yet.
func (s *Service) newRoot(ctx context.Context, org string, version int64) (store.Root, error) {
	o, err := s.Store.Org(ctx, org)
	if err != nil {
		return store.Root{}, err
	}
	name := "Portreeve egress for " + o.Slug
	if version > 1 {
		name += fmt.Sprintf(", root %d", version) // two of one name would be taken for each other
	}
	root, err := ca.NewRoot(name, s.Earliest(), s.Now())
	if err != nil {
		return store.Root{}, err
	}
	key, err := root.MarshalKey()
	if err != nil {
		return store.Root{}, err
	}
	sealed, err := s.Keyring.Seal(record(org, version), key)
	return store.Root{Org: org, Version: version, Certificate: root.Certificate.Raw, SealedKey: sealed}, err
}

// open returns a root that can sign.
func (s *Service) open(r store.Root) (*ca.Root, error) {
	key, err := s.Keyring.Open(record(r.Org, r.Version), r.SealedKey)
	if err != nil {
		return nil, err
	}
	return ca.LoadRoot(r.Certificate, key)
}

// change makes a change of an org's authority, with its audit entry, and lets it be known.
func (s *Service) change(ctx context.Context, by store.By, action audit.Action, details map[string]string, fn func(*store.Tx) error) (int64, error) {
	revision, err := s.Store.Change(ctx, by, func(tx *store.Tx) error {
		if err := fn(tx); err != nil {
			return err
		}
		return tx.Record(ctx, action, tx.Org(), details)
	})
	if err == nil && revision > 0 {
		s.Publish(ctx, revision)
	}
	return revision, err
}

// Sign returns an intermediate for an edge's key and then the root above it, in DER. It is written down before it is handed out.
func (s *Service) Sign(ctx context.Context, org string, key *ecdsa.PublicKey) ([][]byte, error) {
	all, err := s.roots(ctx, org)
	if err != nil {
		return nil, err
	}
	for _, r := range all {
		if r.State != store.RootSigning {
			continue
		}
		root, err := s.open(r)
		if err != nil {
			return nil, err
		}
		cert, err := root.Intermediate(key, s.Earliest(), s.Now())
		if err != nil {
			return nil, err
		}
		m := store.Intermediate{Serial: serial(cert.SerialNumber), Root: r.Version, EndsAt: cert.NotAfter}
		_, err = s.change(ctx, store.By{Principal: sso.System("edge", org)}, audit.AuthoritySign, map[string]string{"serial": m.Serial}, func(tx *store.Tx) error {
			return tx.AddIntermediate(ctx, m)
		})
		if err != nil {
			return nil, err
		}
		return [][]byte{cert.Raw, root.Certificate.Raw}, nil
	}
	return nil, fmt.Errorf("no root of %q signs", org)
}
