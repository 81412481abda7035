package policies

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func dohSnapshot(t testing.TB, documents ...string) *Snapshot {
	t.Helper()
	var layers []Layer
	for i, text := range documents {
		d, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, Layer{Name: string(rune('a' + i)), Version: int64(i + 1), Document: d})
	}
	s, err := Compile(layers...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const dohAny = `{"rules": [{"id": "all", "action": "allow", "any": true, "ports": [443, 853, 8443], "protocols": ["https", "tls", "tcp"]}]`

// Other resolvers are closed, whatever a rule allows that does not name them.
func TestOtherResolversAreClosed(t *testing.T) {
	named := `{"rules": [{"id": "dns", "action": "allow", "hosts": ["dns.google"], "ports": [443, 853], "protocols": ["https", "tls"]}]}`
	nets := func(prefix string) string {
		return `{"rules": [{"id": "net", "action": "allow", "cidrs": ["` + prefix + `"], "ports": [443, 80, 853], "protocols": ["https", "tls"]}]}`
	}
	for name, tt := range map[string]struct {
		documents []string
		host      string
		addr      string
		port      uint16
		reason    Reason
		doh       bool
	}{
		"a resolver under any":             {[]string{dohAny + `}`}, "dns.google", "", 443, ReasonDoH, false},
		"below one":                        {[]string{dohAny + `}`}, "mozilla.cloudflare-dns.com", "", 443, ReasonDoH, false},
		"on another port":                  {[]string{dohAny + `}`}, "dns.google", "", 8443, ReasonDoH, false},
		"its neighbour":                    {[]string{dohAny + `}`}, "www.google", "", 443, ReasonAllowed, false},
		"a name that only ends like one":   {[]string{dohAny + `}`}, "notcloudflare-dns.com", "", 443, ReasonAllowed, false},
		"port 853 of anybody":              {[]string{dohAny + `}`}, "www.example.com", "", 853, ReasonDoH, false},
		"under a wildcard":                 {[]string{`{"rules": [{"id": "w", "action": "allow", "hosts": ["*.quad9.net"]}]}`}, "dns.quad9.net", "", 443, ReasonDoH, false},
		"named":                            {[]string{named}, "dns.google", "", 443, ReasonAllowed, true},
		"named, on port 853":               {[]string{named}, "dns.google", "", 853, ReasonAllowed, true},
		"named beside any":                 {[]string{strings.TrimSuffix(dohAny, "]") + `,{"id": "dns", "action": "allow", "hosts": ["dns.google"]}]}`}, "dns.google", "", 443, ReasonAllowed, true},
		"named under a ceiling of any":     {[]string{dohAny + `}`, named}, "dns.google", "", 443, ReasonDoH, false},
		"allowed":                          {[]string{dohAny + `, "doh": "allow"}`}, "dns.google", "", 443, ReasonAllowed, true},
		"allowed by the ceiling":           {[]string{dohAny + `, "doh": "allow"}`, dohAny + `}`}, "dns.google", "", 443, ReasonAllowed, true},
		"allowed and blocked":              {[]string{dohAny + `, "doh": "allow"}`, dohAny + `, "doh": "block"}`}, "dns.google", "", 443, ReasonDoH, false},
		"allowed below the ceiling":        {[]string{dohAny + `}`, dohAny + `, "doh": "allow"}`}, "dns.google", "", 443, ReasonDoH, false},
		"only watched":                     {[]string{dohAny + `, "observe_until": "2026-01-01T01:00:00Z"}`}, "dns.google", "", 443, ReasonDoH, true},
		"its address in a range":           {[]string{nets("8.8.8.0/24")}, "", "8.8.8.8", 443, ReasonDoH, false},
		"its address, mapped":              {[]string{nets("8.8.8.0/24")}, "", "::ffff:8.8.8.8", 443, ReasonDoH, false},
		"its address named":                {[]string{nets("8.8.8.8/32")}, "", "8.8.8.8", 443, ReasonAllowed, true},
		"its address, port 853 in a range": {[]string{nets("8.8.8.0/24")}, "", "8.8.8.9", 853, ReasonDoH, false},
		"the address beside it":            {[]string{nets("8.8.8.0/24")}, "", "8.8.8.9", 443, ReasonAllowed, false},
		"a resolver that nothing allows":   {[]string{`{"rules": []}`}, "dns.google", "", 443, ReasonNoRule, false},
		"a denied one":                     {[]string{strings.TrimSuffix(dohAny, "]") + `,{"id": "no", "action": "deny", "hosts": ["dns.google"]}]}`}, "dns.google", "", 443, ReasonRuleDenied, false},
		"Firefox's question about its DoH": {[]string{dohAny + `}`}, "use-application-dns.net", "", 443, ReasonDoH, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := dohSnapshot(t, tt.documents...)
			r := Request{Stage: StageConnect, Host: tt.host, Port: tt.port, Protocol: TLS, Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
			if tt.port == 443 || tt.port == 8443 {
				r.Protocol = HTTPS
			}
			if tt.addr != "" {
				r.Addr = netip.MustParseAddr(tt.addr)
			}
			v := s.Evaluate(&r)
			watched := name == "only watched"
			if v.Reason != tt.reason || v.Allowed() != (tt.reason == ReasonAllowed || watched) || v.DoH != tt.doh || v.Observed != watched {
				t.Errorf("got %+v", v)
			}
			if v.Reason == ReasonDoH && (v.Requestable || v.Rule == "" || v.Layer == "") {
				t.Errorf("denied as %+v", v)
			}
			if tt.host != "" && tt.port == 443 { // the resolver of ours says the same about the name
				r = Request{Stage: StageName, Host: tt.host, Now: r.Now}
				if again := s.Evaluate(&r); again.Reason != v.Reason || again.Allowed() != v.Allowed() {
					t.Errorf("by name: %+v", again)
				}
			}
		})
	}
}

func TestDoHIsReadAndWritten(t *testing.T) {
	for text, want := range map[string]DoHMode{`{"rules": []}`: DoHUnset, `{"rules": [], "doh": "block"}`: DoHBlock, `{"rules": [], "doh": "allow"}`: DoHAllow} {
		d, err := Parse([]byte(text))
		if err != nil || d.DoH != want {
			t.Fatalf("%s: %v, %v", text, d, err)
		}
		again, err := d.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Parse(again); err != nil || back.DoH != want {
			t.Errorf("%s is written as %s", text, again)
		}
	}
	for _, bad := range []string{`"open"`, `""`, `true`, `null`} {
		if _, err := Parse([]byte(`{"rules": [], "doh": ` + bad + `}`)); err == nil {
			t.Errorf("doh: %s was read", bad)
		}
	}
	if _, err := (&Document{DoH: 9}).Normal(); err == nil {
		t.Error("a mode that does not exist")
	}
}

// Whatever is listed is meant, with everything below it.
func TestListedResolversAreKnown(t *testing.T) {
	for host := range resolverHosts {
		if !ResolverHost(host) || !ResolverHost("x."+host) {
			t.Errorf("%s is not known", host)
		}
	}
	for addr := range resolverAddrs {
		if !otherResolver(&Request{Stage: StageConnect, Addr: addr, Port: 443}) {
			t.Errorf("%v is not known", addr)
		}
	}
}
