package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/egress/ca"
	"portreeve.dev/gateway/authorities"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

type authorityView struct {
	Trust         string             `json:"trust" doc:"The roots that sandboxes trust, in PEM; the one that signs is the first."`
	Waiting       int                `json:"waiting_sandboxes" doc:"While a root is next: sandboxes that were made before it, for whose programs the one before signs on."`
	Roots         []rootView         `json:"roots" nullable:"false" doc:"The newest first."`
	Intermediates []intermediateView `json:"intermediates" nullable:"false" doc:"What the roots signed for edges and has not ended, the newest first."`
}

type rootView struct {
	Version   int64      `json:"version"`
	State     string     `json:"state" enum:"next,signing,leaving,retired" doc:"next: trusted, and to sign later. signing. leaving: trusted, and signs no more. retired: not trusted, and its key is gone."`
	ID        string     `json:"id" doc:"Of its key, in hexadecimal."`
	Name      string     `json:"name"`
	CreatedAt time.Time  `json:"created_at"`
	EndsAt    time.Time  `json:"ends_at" doc:"The end of its certificate."`
	ChangesAt *time.Time `json:"changes_at,omitempty" doc:"next: it signs from then on at the latest. leaving: it is retired then. retired: since when."`
	List      string     `json:"crl,omitempty" doc:"The path at this address, without a credential, of the list of what it took back, in DER."`
}

type intermediateView struct {
	Serial    string     `json:"serial" doc:"In hexadecimal."`
	Root      int64      `json:"root" doc:"The version of the root that signed it."`
	CreatedAt time.Time  `json:"created_at"`
	EndsAt    time.Time  `json:"ends_at"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
}

type authorityOut struct {
	Body authorityView
}

type rotateIn struct {
	Wait string `query:"wait" enum:"applied" doc:"Answer after every connected edge has acknowledged."`
	Body struct {
		After *int64 `json:"after_seconds,omitempty" minimum:"0" maximum:"7776000" doc:"How long the new root waits at most for sandboxes that were made before it to end; default 86400. 0: it signs at once, and all others are retired with their keys, for a root that can't be trusted any more."`
	}
}

type revokeIn struct {
	Serial string `path:"serial"`
	Wait   string `query:"wait" enum:"applied" doc:"Answer after every connected edge has acknowledged."`
}

// rotateAfter is how long a new root waits where nobody says it.
const rotateAfter = 24 * time.Hour

func (s *Server) authorityRoutes() {
	tags := []string{"authority"}
	route(s, sso.ScopeRead, huma.Operation{OperationID: "get-authority", Method: http.MethodGet, Path: "/settings/ca", Summary: "Get the authority under which TLS is opened", Tags: tags,
		Description: "Its roots, and what they signed. The first call makes the first root."}, s.getAuthority)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "rotate-authority", Method: http.MethodPost, Path: "/settings/ca/rotate", Summary: "Begin a new root", Tags: tags,
		Description: "Sandboxes trust both roots within seconds. The new one signs once no sandbox lives that was made before it, or when its wait is over; a day later the old one is retired."}, s.rotateAuthority)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "revoke-intermediate", Method: http.MethodPost, Path: "/settings/ca/intermediates/{serial}/revoke", Summary: "Take back what a root signed for an edge", Tags: tags,
		Description: "It goes on the list of its root, and each edge asks for another before it signs again. Clients that ask for no list trust it until it ends: if its key is known to somebody, begin a new root with after_seconds 0."}, s.revokeIntermediate)
}

func (s *Server) getAuthority(ctx context.Context, c *caller, _ *struct{}) (*authorityOut, error) {
	v, err := s.Authorities.View(ctx, c.org())
	if err != nil {
		return nil, err
	}
	return &authorityOut{viewAuthority(c.org(), v)}, nil
}

func viewAuthority(org string, v authorities.View) authorityView {
	out := authorityView{Trust: string(v.Trust), Waiting: v.Waiting, Roots: []rootView{}, Intermediates: []intermediateView{}}
	for _, r := range v.Roots {
		view := rootView{Version: r.Version, State: string(r.State), ID: r.ID, Name: r.Name, CreatedAt: r.CreatedAt, EndsAt: r.EndsAt, ChangesAt: unlessZero(r.ChangesAt)}
		if r.State.Trusted() {
			view.List = "/ca/" + org + strings.TrimPrefix(ca.ListPath(r.ID), "/ca")
		}
		out.Roots = append(out.Roots, view)
	}
	for _, m := range v.Intermediates {
		out.Intermediates = append(out.Intermediates, intermediateView{m.Serial, m.Root, m.CreatedAt, m.EndsAt, unlessZero(m.RevokedAt)})
	}
	return out
}

func unlessZero(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func (s *Server) rotateAuthority(ctx context.Context, c *caller, in *rotateIn) (*authorityOut, error) {
	after := rotateAfter
	if in.Body.After != nil {
		after = time.Duration(*in.Body.After) * time.Second
	}
	revision, err := s.Authorities.Rotate(ctx, c.By, after)
	if errors.Is(err, authorities.ErrRotating) {
		return nil, problem(http.StatusConflict, "rotation_under_way", "the new root of an earlier rotation does not sign yet: wait for it, or say after_seconds 0, which retires it with all others")
	}
	if err != nil {
		return nil, err
	}
	if err := s.published(ctx, revision, in.Wait); err != nil {
		return nil, err
	}
	return s.getAuthority(ctx, c, nil)
}

func (s *Server) revokeIntermediate(ctx context.Context, c *caller, in *revokeIn) (*authorityOut, error) {
	revision, err := s.Authorities.Revoke(ctx, c.By, in.Serial)
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("intermediate")
	}
	if err != nil {
		return nil, err
	}
	if err := s.published(ctx, revision, in.Wait); err != nil {
		return nil, err
	}
	return s.getAuthority(ctx, c, nil)
}

// revokedList answers /ca/ORG/ID.crl, without a credential: who checks a certificate has none.
func (s *Server) revokedList(w http.ResponseWriter, r *http.Request) {
	org, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/ca/"), "/")
	id, ok := strings.CutSuffix(name, ".crl")
	if !ok {
		s.refuseTo(w, r, notFound("list"))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	list, err := s.Authorities.List(ctx, org, id)
	if errors.Is(err, ca.ErrNoList) {
		err = notFound("list")
	}
	if err != nil {
		s.refuseTo(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/pkix-crl")
	w.Write(list)
}
