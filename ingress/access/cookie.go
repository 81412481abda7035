package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"
	"time"

	"portreeve.dev/ingress/route"
)

const (
	secureCookie = "__Host-portreeve-tunnel"
	plainCookie  = "portreeve-tunnel"

	bodySize   = 1 + 8 + 8 // version, epoch, end in seconds
	cookieSize = bodySize + sha256.Size
)

func cookieName(secure bool) string {
	if secure {
		return secureCookie
	}
	return plainCookie
}

// setCookie returns the value of a Set-Cookie header that admits to the tunnel until it ends.
func (g *Gate) setCookie(rec *route.Record, secure bool) string {
	age := max(int(rec.ExpiresAt.Sub(g.now())/time.Second), 1)
	c := cookieName(secure) + "=" + seal(g.keys[0], rec, secure) + "; Path=/; Max-Age=" + strconv.Itoa(age) + "; HttpOnly; SameSite=Lax"
	if secure {
		c += "; Secure"
	}
	return c
}

// seal makes the value of a cookie.
func seal(key []byte, rec *route.Record, secure bool) string {
	b := make([]byte, 0, cookieSize)
	b = append(b, 1)
	b = binary.BigEndian.AppendUint64(b, rec.AuthEpoch)
	b = binary.BigEndian.AppendUint64(b, uint64(rec.ExpiresAt.Unix()))
	return base64.RawURLEncoding.EncodeToString(append(b, code(key, b, rec, secure)...))
}

// code binds what a cookie says to everything that it may be used for.
func code(key, body []byte, rec *route.Record, secure bool) []byte {
	m := hmac.New(sha256.New, key)
	for _, part := range [...]string{"portreeve tunnel cookie", string(body), rec.Tunnel, rec.Host, string(rec.TokenHash[:]), scheme(secure)} {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(part)))
		m.Write(n[:])
		m.Write([]byte(part))
	}
	return m.Sum(nil)
}

// open reports whether value is a cookie of ours for the tunnel as it is now.
func (g *Gate) open(value string, rec *route.Record, secure bool) bool {
	if len(value) != base64.RawURLEncoding.EncodedLen(cookieSize) {
		return false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err != nil || b[0] != 1 {
		return false
	}
	epoch, end := binary.BigEndian.Uint64(b[1:]), binary.BigEndian.Uint64(b[9:])
	if epoch != rec.AuthEpoch || uint64(max(g.now().Unix(), 0)) >= end {
		return false
	}
	for _, k := range g.keys {
		if hmac.Equal(b[bodySize:], code(k, b[:bodySize], rec, secure)) {
			return true
		}
	}
	return false
}

// rightCookie tries each cookie of our name: an old one may stand before the right one.
func (g *Gate) rightCookie(r *http.Request, rec *route.Record, secure bool) bool {
	const most = 8
	name, tried := cookieName(secure), 0
	for _, line := range r.Header["Cookie"] {
		for pair := range strings.SplitSeq(line, ";") {
			n, value, ok := strings.Cut(strings.Trim(pair, " \t"), "=")
			if !ok || n != name {
				continue
			}
			if tried++; tried > most {
				return false
			}
			if g.open(value, rec, secure) {
				return true
			}
		}
	}
	return false
}
