package authorities

import (
	"context"
	"time"

	"portreeve.dev/egress/ca"
	"portreeve.dev/gateway/internal/store"
)

// A View is how an org's authority stands.
type View struct {
	Roots         []RootView // the newest first
	Intermediates []store.Intermediate
	Trust         []byte // PEM
	Waiting       int    // sandboxes that were made before the root that is next; 0 when none is
}

// A RootView is one root without its key.
type RootView struct {
	Version   int64
	State     store.RootState
	ID        string // as in ca.ListPath
	Name      string
	CreatedAt time.Time
	EndsAt    time.Time // of the certificate
	ChangesAt time.Time // when it leaves its state at the latest, or came into retirement; zero: nobody said
}

// View returns how the org's authority stands; it makes the first root if there is none.
func (s *Service) View(ctx context.Context, org string) (View, error) {
	all, err := s.roots(ctx, org)
	if err != nil {
		return View{}, err
	}
	v := View{Trust: trusted(all)}
	for _, r := range all {
		id, name, ends, err := ca.Describe(r.Certificate)
		if err != nil {
			return View{}, err
		}
		v.Roots = append(v.Roots, RootView{Version: r.Version, State: r.State, ID: id, Name: name, CreatedAt: r.CreatedAt, EndsAt: ends, ChangesAt: r.ChangesAt})
		if r.State == store.RootNext {
			if v.Waiting, err = s.waiting(ctx, r); err != nil {
				return View{}, err
			}
		}
	}
	v.Intermediates, err = s.Store.Intermediates(ctx, org, s.Now())
	return v, err
}
