package access

import (
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"portreeve.dev/ingress/route"
)

const (
	token = "tk_right"
	host  = "abcdefghijklmn27-3000.tunnel.localhost"
)

var (
	now  = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	keyA = []byte(strings.Repeat("a", 32))
	keyB = []byte(strings.Repeat("b", 32))
)

func private(change ...func(*route.Record)) *route.Record {
	r := &route.Record{
		Host: host, Tunnel: "tun_1", Sandbox: "sbx_1", Org: "org_1", Port: 3000, Generation: 1, State: route.Running,
		TokenHash: sha256.Sum256([]byte(token)), AuthEpoch: 3, ExpiresAt: now.Add(time.Hour),
	}
	for _, f := range change {
		f(r)
	}
	return r
}

func gate(t testing.TB, keys ...[]byte) *Gate {
	t.Helper()
	g, err := NewGate(keys, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// request makes one; headers are pairs of name and value.
func request(method, target string, headers ...string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.Host = host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestPrivateTunnelWantsItsToken(t *testing.T) {
	g := gate(t, keyA)
	none := private(func(r *route.Record) { r.TokenHash = route.Hash{} })
	for name, test := range map[string]struct {
		r    *http.Request
		rec  *route.Record
		want Verdict
	}{
		"the token in the header":              {request("GET", "/", Header, token), private(), Admit},
		"the token in the second header":       {request("GET", "/", Header, "x", Header, token), private(), Admit},
		"the token in the query of a POST":     {request("POST", "/?portreeve_token="+token), private(), Admit},
		"the token in the query of a socket":   {request("GET", "/?portreeve_token="+token, "Upgrade", "websocket"), private(), Admit},
		"the token in the query of a page":     {request("GET", "/?portreeve_token="+token), private(), Redirect},
		"the token in the query with h2c":      {request("GET", "/?portreeve_token="+token, "Upgrade", "h2c"), private(), Redirect},
		"nothing on a public tunnel":           {request("GET", "/"), private(func(r *route.Record) { r.Public = true }), Admit},
		"nothing":                              {request("GET", "/"), private(), Refuse},
		"another token":                        {request("GET", "/", Header, "tk_wrong"), private(), Refuse},
		"an empty token":                       {request("GET", "/", Header, ""), private(), Refuse},
		"the token with a space":               {request("GET", "/", Header, token+" "), private(), Refuse},
		"another token in the query":           {request("GET", "/?portreeve_token=x"), private(), Refuse},
		"the token as Authorization":           {request("GET", "/", "Authorization", "Bearer "+token), private(), Refuse},
		"the token as a cookie":                {request("GET", "/", "Cookie", secureCookie+"="+token), private(), Refuse},
		"a forged path of another proxy":       {request("GET", "/", "X-Forwarded-Uri", "/public", "X-Original-Url", "/?portreeve_token="+token), private(), Refuse},
		"an empty token where none is set":     {request("GET", "/", Header, ""), none, Refuse},
		"no token where none is set":           {request("GET", "/"), none, Refuse},
		"a preflight without the token":        {request("OPTIONS", "/", "Access-Control-Request-Method", "PUT"), private(), Refuse},
		"the token under another header's eye": {request("GET", "/", "X_portreeve_token", token), private(), Refuse},
	} {
		if got := g.Check(test.r, test.rec, host, true).Verdict; got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// enter gets the cookie that a browser gets for the token.
func enter(t testing.TB, g *Gate, rec *route.Record, secure bool) string {
	t.Helper()
	p := g.Check(request("GET", "/?portreeve_token="+token), rec, rec.Host, secure)
	if p.Verdict != Redirect {
		t.Fatalf("the token was not taken: %v", p.Verdict)
	}
	pair, _, _ := strings.Cut(p.Cookie, ";")
	return pair
}

func TestCookieCountsForOneTunnel(t *testing.T) {
	g := gate(t, keyA)
	pair := enter(t, g, private(), true)
	name, value, _ := strings.Cut(pair, "=")
	flipped := []byte(value)
	flipped[3] ^= 1
	plain := enter(t, g, private(), false)
	for what, test := range map[string]struct {
		cookie string
		g      *Gate
		rec    *route.Record
		want   Verdict
	}{
		"itself":                      {pair, g, private(), Admit},
		"itself among others":         {"a=b; " + pair + ";c=d", g, private(), Admit},
		"an old one before it":        {name + "=old; " + pair, g, private(), Admit},
		"signed by the key before":    {pair, gate(t, keyB, keyA), private(), Admit},
		"signed by a forgotten key":   {pair, gate(t, keyB), private(), Refuse},
		"another tunnel":              {pair, g, private(func(r *route.Record) { r.Tunnel = "tun_2" }), Refuse},
		"another host":                {pair, g, private(func(r *route.Record) { r.Host = "x." + host }), Refuse},
		"another epoch":               {pair, g, private(func(r *route.Record) { r.AuthEpoch++ }), Refuse},
		"another token":               {pair, g, private(func(r *route.Record) { r.TokenHash[0]++ }), Refuse},
		"changed in one bit":          {name + "=" + string(flipped), g, private(), Refuse},
		"cut short":                   {pair[:len(pair)-1], g, private(), Refuse},
		"with more behind":            {pair + "A", g, private(), Refuse},
		"another name":                {"x" + pair, g, private(), Refuse},
		"one of the plain listener":   {plain, g, private(), Refuse},
		"its value by the plain name": {plainCookie + "=" + value, g, private(), Refuse},
		"the plain value by its name": {name + "=" + strings.TrimPrefix(plain, plainCookie+"="), g, private(), Refuse},
		"many wrong ones before it":   {strings.Repeat(name+"=x; ", 20) + pair, g, private(), Refuse},
	} {
		if got := test.g.Check(request("GET", "/", "Cookie", test.cookie), test.rec, host, true).Verdict; got != test.want {
			t.Errorf("%s: %v, want %v", what, got, test.want)
		}
	}
	if got := g.Check(request("GET", "/", "Cookie", plain), private(), host, false).Verdict; got != Admit {
		t.Errorf("the plain cookie on the plain listener: %v", got)
	}
	later := &Gate{g.keys, func() time.Time { return now.Add(time.Hour) }}
	if got := later.Check(request("GET", "/", "Cookie", pair), private(func(r *route.Record) { r.ExpiresAt = now.Add(2 * time.Hour) }), host, true).Verdict; got != Refuse {
		t.Errorf("after its end: %v", got)
	}
}

func TestCookieIsForTheHostAlone(t *testing.T) {
	secure := gate(t, keyA).Check(request("GET", "/?portreeve_token="+token), private(), host, true).Cookie
	for _, want := range []string{"__Host-portreeve-tunnel=", "; Path=/;", "; Secure", "; HttpOnly", "; SameSite=Lax", "; Max-Age=3600;"} {
		if !strings.Contains(secure, want) {
			t.Errorf("%q lacks %q", secure, want)
		}
	}
	plain := gate(t, keyA).Check(request("GET", "/?portreeve_token="+token), private(), host, false).Cookie
	if strings.Contains(plain, "Secure") || !strings.HasPrefix(plain, "portreeve-tunnel=") || strings.Contains(secure+plain, "Domain") {
		t.Errorf("plain: %q", plain)
	}
}

func TestOtherSitesCannotUseTheCookie(t *testing.T) {
	g := gate(t, keyA)
	pair := enter(t, g, private(), true)
	own, other := "https://"+host, "https://bbcdefghijklmn27-3000.tunnel.localhost"
	for name, test := range map[string]struct {
		r    *http.Request
		want Verdict
	}{
		"a page opened from elsewhere":   {request("GET", "/", "Cookie", pair, "Sec-Fetch-Site", "cross-site"), Admit},
		"a socket of its own":            {request("GET", "/", "Cookie", pair, "Upgrade", "websocket", "Origin", own), Admit},
		"a socket of its own, :443":      {request("GET", "/", "Cookie", pair, "Upgrade", "websocket", "Origin", own+":443"), Admit},
		"a socket of a sibling":          {request("GET", "/", "Cookie", pair, "Upgrade", "websocket", "Origin", other), Foreign},
		"a socket of a sandboxed page":   {request("GET", "/", "Cookie", pair, "Upgrade", "websocket", "Origin", "null"), Foreign},
		"a socket by two origins":        {request("GET", "/", "Cookie", pair, "Upgrade", "websocket", "Origin", own, "Origin", other), Foreign},
		"a socket over http":             {request("GET", "/", "Cookie", pair, "Upgrade", "websocket", "Origin", "http://"+host), Foreign},
		"a socket of another port":       {request("GET", "/", "Cookie", pair, "Upgrade", "websocket", "Origin", own+":8443"), Foreign},
		"a socket of a longer name":      {request("GET", "/", "Cookie", pair, "Upgrade", "websocket", "Origin", own+".evil.test"), Foreign},
		"a socket with the token itself": {request("GET", "/", Header, token, "Upgrade", "websocket", "Origin", other), Admit},
		"a form of its own":              {request("POST", "/", "Cookie", pair, "Origin", own), Admit},
		"a form of a sibling":            {request("POST", "/", "Cookie", pair, "Origin", other), Foreign},
		"a form without an origin":       {request("POST", "/", "Cookie", pair, "Sec-Fetch-Site", "same-site"), Foreign},
		"a program's own request":        {request("POST", "/", "Cookie", pair), Admit},
	} {
		if got := g.Check(test.r, private(), host, true).Verdict; got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestRedirectStaysOnTheHost(t *testing.T) {
	g := gate(t, keyA)
	for target, want := range map[string]string{
		"/?portreeve_token=" + token:                                   "https://" + host + ":8443/",
		"/a%2fb;c?x=1&portreeve_token=" + token + "&y=%zz;w&&=":        "https://" + host + ":8443/a%2fb;c?x=1&y=%zz;w&&=",
		"//evil.test/x?portreeve_token=" + token:                       "https://" + host + ":8443//evil.test/x",
		"/\\evil.test?portreeve_token=" + token:                        "https://" + host + ":8443/\\evil.test",
		"/?%70ortreeve_token=" + token + "&portreeve_token=x&a=b":      "https://" + host + ":8443/?a=b",
		"https://evil.test/x?portreeve_token=" + token:                 "https://" + host + ":8443/x",
		"/?portreeve_tokens=1&portreeve_token=" + token + "&a=%2525+b": "https://" + host + ":8443/?portreeve_tokens=1&a=%2525+b",
	} {
		r := request("GET", "/")
		r.RequestURI = target
		_, r.URL.RawQuery, _ = strings.Cut(target, "?")
		r.Header.Set("X-Forwarded-Host", "evil.test")
		r.Header.Set("X-Forwarded-Proto", "ftp")
		p := g.Check(r, private(), host+":8443", true)
		if p.Verdict != Redirect || p.Location != want {
			t.Errorf("%q: %v to %q, want %q", target, p.Verdict, p.Location, want)
		}
	}
}

func FuzzCookie(f *testing.F) {
	g := gate(f, keyA)
	rec := private()
	right := strings.TrimPrefix(enter(f, g, rec, true), secureCookie+"=")
	f.Add(right)
	f.Add(right[:len(right)-1] + "A")
	f.Add(strings.Repeat("A", len(right)))
	f.Fuzz(func(t *testing.T, value string) {
		if g.open(value, rec, true) != (value == right) {
			t.Fatalf("%q: accepted %v", value, value != right)
		}
	})
}

// BenchmarkCheckCookie watches what a browser's request on a private tunnel costs before it is forwarded.
func BenchmarkCheckCookie(b *testing.B) {
	g := gate(b, keyA)
	rec := private()
	r := request("GET", "/", "Cookie", "theme=dark; "+enter(b, g, rec, true))
	b.ReportAllocs()
	for b.Loop() {
		if g.Check(r, rec, host, true).Verdict != Admit {
			b.Fatal("refused")
		}
	}
}
