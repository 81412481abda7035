package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"portreeve.dev/ingress/route"
)

// Where a token is looked for.
const (
	Header = "X-Portreeve-Token"
	Query  = "portreeve_token"
)

// A Verdict is what Check says. The zero value refuses.
type Verdict uint8

const (
	Refuse   Verdict = iota
	Foreign          // right cookie, but another site sent the request
	Redirect         // right token in the query: to Pass.Location, with Pass.Cookie
	Admit
)

// A Pass is the outcome of a Check.
type Pass struct {
	Verdict  Verdict
	Epoch    uint64 // under which it was admitted
	Location string
	Cookie   string
}

// A Gate checks requests. It is safe for concurrent use.
type Gate struct {
	keys [][]byte
	now  func() time.Time
}

// NewGate returns a Gate whose cookies are signed with the first key and accepted with any of them.
func NewGate(keys [][]byte, now func() time.Time) (*Gate, error) {
	if len(keys) == 0 {
		return nil, errors.New("access: no cookie key")
	}
	for _, k := range keys {
		if len(k) < 32 {
			return nil, errors.New("access: a cookie key is shorter than 32 bytes")
		}
	}
	if now == nil {
		now = time.Now
	}
	return &Gate{slices.Clone(keys), now}, nil
}

// Check says whether r may use the tunnel of rec. authority is the host, and port if any, under which the client knows the
// tunnel; secure tells that r came over TLS. It changes nothing.
func (g *Gate) Check(r *http.Request, rec *route.Record, authority string, secure bool) Pass {
	pass := Pass{Verdict: Admit, Epoch: rec.AuthEpoch}
	if rec.Public {
		return pass
	}
	for _, token := range r.Header[Header] {
		if rightToken(token, rec) {
			return pass
		}
	}
	rest, tokens := cutQuery(r.URL.RawQuery)
	if slices.ContainsFunc(tokens, func(t string) bool { return rightToken(t, rec) }) {
		if !redirectable(r) {
			return pass
		}
		return Pass{Redirect, rec.AuthEpoch, location(r, authority, secure, rest), g.setCookie(rec, secure)}
	}
	if g.rightCookie(r, rec, secure) {
		if !ownSite(r, rec, authority, secure) {
			return Pass{Verdict: Foreign}
		}
		return pass
	}
	return Pass{}
}

// rightToken compares hashes in constant time. A record without a token has none that is right.
func rightToken(token string, rec *route.Record) bool {
	sum := sha256.Sum256([]byte(token))
	return rec.TokenHash != route.Hash{} && subtle.ConstantTimeCompare(sum[:], rec.TokenHash[:]) == 1
}

// redirectable tells a request that a browser's address bar may have sent from one that can't follow: only then the token
// has to vanish from the URL.
func redirectable(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") &&
		!strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc")
}

// location is the same URL without the token, byte for byte. It names the host: a path may begin with two slashes.
func location(r *http.Request, authority string, secure bool, query string) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if query != "" {
		path += "?" + query
	}
	return scheme(secure) + "://" + authority + originForm(path)
}

// originForm cuts scheme and authority off a target in absolute form.
func originForm(target string) string {
	if strings.HasPrefix(target, "/") {
		return target
	}
	if _, rest, ok := strings.Cut(target, "://"); ok {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			return rest[i:]
		}
	}
	return "/"
}

func scheme(secure bool) string {
	if secure {
		return "https"
	}
	return "http"
}

// ownSite reports whether a request that is admitted by nothing but a cookie may do what it does. Browsers tell where a
// request comes from; reading is left to them, as other sites can't see the answer.
func ownSite(r *http.Request, rec *route.Record, authority string, secure bool) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		if r.Header["Upgrade"] == nil {
			return true
		}
	}
	if origin := r.Header["Origin"]; len(origin) > 0 {
		return len(origin) == 1 && sameOrigin(origin[0], rec.Host, authority, secure)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin", "none":
		return true
	}
	return false
}

// sameOrigin compares an Origin with the tunnel's own, in the normal form of its host.
func sameOrigin(origin, host, authority string, secure bool) bool {
	u, err := url.Parse(origin)
	if err != nil || u.Scheme != scheme(secure) || u.User != nil || u.Path != "" {
		return false
	}
	h, port, err := route.Split(u.Host)
	if err != nil || h != host {
		return false
	}
	_, own, _ := strings.Cut(authority, ":")
	return usualPort(port, secure) == usualPort(own, secure)
}

func usualPort(port string, secure bool) string {
	switch {
	case port != "":
		return port
	case secure:
		return "443"
	}
	return "80"
}
