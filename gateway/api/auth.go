package api

import (
	"errors"
	"net/http"
	"time"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

func unauthorized(detail string) *Problem {
	return problem(http.StatusUnauthorized, "unauthorized", detail).with("Www-Authenticate", `ApiKey realm="portreeve"`)
}

// authenticate finds out who asks. Every way in which a key is not good gives the same answer.
func (s *Server) authenticate(r *http.Request) (*caller, error) {
	text, err := sso.FromHeader(r.Header)
	if err != nil {
		return nil, unauthorized(err.Error())
	}
	parsed, err := sso.ParseKey(text.Reveal())
	if err != nil {
		return nil, unauthorized("the key is not known, or no longer")
	}
	key, err := s.Store.KeyForLogin(r.Context(), parsed.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, unauthorized("the key is not known, or no longer")
	}
	if err != nil {
		return nil, err
	}
	now := s.Now()
	if !parsed.Matches(key.Hash) || !key.Live(now) {
		return nil, unauthorized("the key is not known, or no longer")
	}
	if err := sameOrg(r, key.Org); err != nil {
		return nil, err
	}
	if now.Sub(key.LastUsed) > time.Minute {
		if err := s.Store.TouchKey(r.Context(), key.ID, now); err != nil {
			s.Log.Warn("noting a key's use", "err", err, "principal", key.ID)
		}
	}
	who := sso.Principal{Kind: sso.KindKey, ID: key.ID, Org: key.Org, Scopes: key.Scopes, Policies: key.Policies}
	return &caller{By: store.By{Principal: who, Address: clientAddress(r), RequestID: requestID(r.Context())}, key: key}, nil
}

// sameOrg refuses a request that names another org than its key's.
func sameOrg(r *http.Request, org string) error {
	for _, named := range r.Header.Values("X-Org-Id") {
		if named != org {
			return problem(http.StatusForbidden, "org_mismatch", "the key belongs to another org", FieldError{"header.X-Org-Id", "is not the key's org"})
		}
	}
	return nil
}

// stillGood reports whether a caller's key is still live, for streams that outlast their first check.
func (s *Server) stillGood(r *http.Request, c *caller) bool {
	key, err := s.Store.KeyForLogin(r.Context(), c.key.ID)
	return err == nil && key.Live(s.Now())
}
