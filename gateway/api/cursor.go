package api

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"

	"portreeve.dev/gateway/internal/store"
)

// A cursor is a place in a list and a signature over it, the org and the question, so that it can't be made up or carried over.
func (s *Server) cursor(org, question string, p store.Position) string {
	place, _ := json.Marshal(p)
	return base64.RawURLEncoding.EncodeToString(place) + "." + base64.RawURLEncoding.EncodeToString(s.sign(org, question, place))
}

func (s *Server) openCursor(org, question, cursor string) (store.Position, error) {
	refused := invalid("query.cursor", "is not a cursor of this list")
	left, right, ok := strings.Cut(cursor, ".")
	place, err := base64.RawURLEncoding.DecodeString(left)
	if !ok || err != nil {
		return store.Position{}, refused
	}
	signature, err := base64.RawURLEncoding.DecodeString(right)
	if err != nil || !hmac.Equal(signature, s.sign(org, question, place)) {
		return store.Position{}, refused
	}
	var p store.Position
	if json.Unmarshal(place, &p) != nil {
		return store.Position{}, refused
	}
	return p, nil
}

func (s *Server) sign(org, question string, place []byte) []byte {
	mac := hmac.New(sha256.New, s.CursorKey)
	json.NewEncoder(mac).Encode([]string{org, question, string(place)})
	return mac.Sum(nil)
}
