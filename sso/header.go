package sso

import (
	"errors"
	"net/http"
	"strings"
)

var (
	// ErrNoCredential says that the request presents none.
	ErrNoCredential = errors.New("no credential: send Authorization: ApiKey <key>")
	// ErrTwoCredentials says that it presents more than one, so that no later reader could pick another than we did.
	ErrTwoCredentials = errors.New("more than one credential")
	// ErrScheme says that the Authorization header is of a kind we don't take.
	ErrScheme = errors.New("the Authorization header must be ApiKey <key> or Bearer <key>")
)

// FromHeader returns the credential that a request presents: Authorization: ApiKey, Authorization: Bearer or X-API-Key.
func FromHeader(h http.Header) (Secret, error) {
	auth, bare := h.Values("Authorization"), h.Values("X-Api-Key")
	switch len(auth) + len(bare) {
	case 0:
		return Secret{}, ErrNoCredential
	case 1:
	default:
		return Secret{}, ErrTwoCredentials
	}
	if len(bare) == 1 {
		return NewSecret(strings.TrimSpace(bare[0])), nil
	}
	scheme, text, _ := strings.Cut(auth[0], " ")
	if !strings.EqualFold(scheme, "ApiKey") && !strings.EqualFold(scheme, "Bearer") {
		return Secret{}, ErrScheme
	}
	return NewSecret(strings.TrimSpace(text)), nil
}
