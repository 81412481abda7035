package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"net/http"
	"net/mail"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

type registerIn struct {
	Token string `header:"X-Portreeve-Setup-Token" doc:"The one-time token of the start screen."`
	Body  struct {
		Email        string `json:"email" maxLength:"254"`
		Organization string `json:"organization_name" minLength:"1" maxLength:"100"`
		FirstName    string `json:"first_name,omitempty" maxLength:"100"`
		LastName     string `json:"last_name,omitempty" maxLength:"100"`
		UseCase      string `json:"use_case,omitempty" maxLength:"1000"`
		SetupToken   string `json:"setup_token,omitempty" maxLength:"200" doc:"The same, for clients that can't set headers."`
	}
}

type registerOut struct {
	Body registered
}

type registered struct {
	Organization orgView    `json:"organization"`
	User         userView   `json:"user"`
	APIKey       newKeyView `json:"api_key"`
}

type orgView struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Slug string `json:"slug"`
	Plan string `json:"plan"`
}

type userView struct {
	ID    string `json:"id"`
	Email string `json:"email"`
	Role  string `json:"role"`
}

type newKeyView struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Key    string `json:"key" doc:"Shown once."`
	Prefix string `json:"key_prefix"`
}

func (s *Server) registerRoutes() {
	op := huma.Operation{OperationID: "register", Method: http.MethodPost, Path: "/register", Summary: "Register an organisation",
		DefaultStatus: http.StatusCreated, MaxBodyBytes: maxBody + 1, BodyReadTimeout: -1, Tags: []string{"organisation"}}
	huma.Register(s.huma, op, func(ctx context.Context, in *registerIn) (*registerOut, error) {
		out, err := s.register(ctx, in)
		if err != nil {
			return nil, s.refusal(ctx, err)
		}
		return out, nil
	})
}

func (s *Server) register(ctx context.Context, in *registerIn) (*registerOut, error) {
	token := in.Token
	if token == "" {
		token = in.Body.SetupToken
	}
	if s.SetupToken.IsZero() || subtle.ConstantTimeCompare([]byte(token), []byte(s.SetupToken.Reveal())) != 1 {
		return nil, unauthorized("registering needs the one-time token of the start screen")
	}
	hash := sha256.Sum256([]byte(token))
	r, _, err := s.newOrg(ctx, in.Body.Organization, in.Body.Email, sso.Scopes(), func(tx *store.Tx) error {
		err := tx.UseSetupToken(ctx, hash[:])
		if errors.Is(err, store.ErrConflict) {
			return unauthorized("the setup token was used already; a restart prints a new one")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &registerOut{Body: r}, nil
}

// Bootstrap makes an org with an owner's key of these scopes and no token: for the supervisor's own first org. The key can't be had again.
func (s *Server) Bootstrap(ctx context.Context, organization, email string, scopes []sso.Scope) (orgID string, key sso.Secret, err error) {
	r, key, err := s.newOrg(ctx, organization, email, scopes, func(*store.Tx) error { return nil })
	return r.Organization.ID, key, err
}

func (s *Server) newOrg(ctx context.Context, organization, email string, scopes []sso.Scope, allowed func(*store.Tx) error) (r registered, secret sso.Secret, err error) {
	if a, err := mail.ParseAddress(email); err != nil || a.Address != email {
		return r, secret, invalid("body.email", "is not an email address")
	}
	secret, key, err := sso.NewKey()
	if err != nil {
		return r, secret, err
	}
	setup := sso.Principal{Kind: sso.KindSetup, ID: "setup", Org: store.NewID("org")}
	rev, err := s.Store.Change(ctx, store.By{Principal: setup, RequestID: requestID(ctx)}, func(tx *store.Tx) error {
		if err := allowed(tx); err != nil {
			return err
		}
		org, err := tx.CreateOrg(ctx, organization, slugOf(organization))
		if err != nil {
			return err
		}
		user, err := tx.CreateUser(ctx, email, "owner")
		if err != nil {
			return err
		}
		k, err := tx.CreateKey(ctx, store.Key{ID: key.ID, Name: "owner", Prefix: key.Prefix, Hash: key.Hash[:], Scopes: scopes, Policies: []string{sso.AnyPolicy}})
		if err != nil {
			return err
		}
		tx.Bump()
		r = registered{orgView{org.ID, org.Name, org.Slug, org.Plan}, userView{user.ID, user.Email, user.Role}, newKeyView{k.ID, k.Name, secret.Reveal(), k.Prefix}}
		return tx.Record(ctx, audit.OrgRegister, org.ID, map[string]string{"key": k.ID, "user": user.ID})
	})
	if err == nil {
		s.Feed.Publish(ctx, rev)
	}
	return r, secret, err
}

// slugOf makes a name for URLs; its random end keeps it unique without telling which names are taken.
func slugOf(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	slug := strings.Trim(b.String(), "-")
	var end [4]byte
	rand.Read(end[:])
	if slug == "" {
		slug = "org"
	}
	return slug[:min(len(slug), 40)] + "-" + hex.EncodeToString(end[:])
}
