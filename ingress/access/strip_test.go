package access

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

func TestNothingOfOursIsForwarded(t *testing.T) {
	for name, test := range map[string]struct {
		query, wantQuery   string
		cookie, wantCookie []string
	}{
		"nothing of ours":         {"a=1&b=%20;c&&=x", "a=1&b=%20;c&&=x", []string{"a=b; c=d"}, []string{"a=b; c=d"}},
		"the token in the query":  {"a=1&portreeve_token=x&b=%2f", "a=1&b=%2f", nil, nil},
		"it alone":                {"portreeve_token=x", "", nil, nil},
		"it without a value":      {"portreeve_token&a", "a", nil, nil},
		"it twice":                {"portreeve_token=x&portreeve_token=y&c", "c", nil, nil},
		"it in escapes":           {"port%72eeve%5Ftoken=x&c", "c", nil, nil},
		"a longer name":           {"portreeve_tokens=x", "portreeve_tokens=x", nil, nil},
		"our cookie":              {"", "", []string{"a=b; __Host-portreeve-tunnel=x; c=d"}, []string{"a=b; c=d"}},
		"our cookie alone":        {"", "", []string{"__Host-portreeve-tunnel=x"}, nil},
		"our cookie first":        {"", "", []string{"portreeve-tunnel=x; a=\"b c\""}, []string{"a=\"b c\""}},
		"in another case":         {"", "", []string{"__host-PORTREEVE-tunnel=x; a=b"}, []string{"a=b"}},
		"on a line of its own":    {"", "", []string{"a=b", "portreeve-tunnel=x", "c=d"}, []string{"a=b", "c=d"}},
		"a name that contains it": {"", "", []string{"my-portreeve-tunnel=x"}, []string{"my-portreeve-tunnel=x"}},
	} {
		r := request("GET", "/?"+test.query)
		r.URL.RawQuery = test.query
		if test.cookie != nil {
			r.Header["Cookie"] = slices.Clone(test.cookie)
		}
		Strip(r)
		if r.URL.RawQuery != test.wantQuery || !slices.Equal(r.Header["Cookie"], test.wantCookie) {
			t.Errorf("%s: %q and %q are left", name, r.URL.RawQuery, r.Header["Cookie"])
		}
	}
}

func TestReferrerTellsNoToken(t *testing.T) {
	for from, want := range map[string]string{
		"https://a.test/page?portreeve_token=x&q=%2f": "https://a.test/page?q=%2f",
		"https://a.test/page?portreeve_token=x":       "https://a.test/page",
		"https://a.test/?port%72eeve_token=x":         "https://a.test/",
		"https://a.test/page?q=1":                     "https://a.test/page?q=1",
		"https://a.test/page?":                        "https://a.test/page?",
	} {
		r := request("GET", "/")
		r.Header.Set("Referer", from)
		Strip(r)
		if got := r.Header.Get("Referer"); got != want {
			t.Errorf("%s: %s is left, want %s", from, got, want)
		}
	}
}

func TestAppCannotSetOurCookies(t *testing.T) {
	for line, want := range map[string]string{
		"a=b; Path=/; HttpOnly":                         "a=b; Path=/; HttpOnly",
		"domain=b; Path=/":                              "domain=b; Path=/",
		"a=b; Domain=localhost; Path=/":                 "a=b; Path=/",
		"a=b;domain = .tunnel.localhost":                "a=b",
		"a=b; DOMAIN; Domain=x; Secure":                 "a=b; Secure",
		"portreeve-tunnel=x":                            "",
		"__Host-portreeve-tunnel=x; Path=/; Secure":     "",
		"__HOST-Portreeve-Anything=x":                   "",
		" __Secure-portreeve-tunnel =x":                 "",
		"__Host-Http-portreeve-tunnel=x":                "",
		"=portreeve-tunnel=x":                           "",
		"portreeve-tunnel":                              "",
		"a=portreeve-tunnel":                            "a=portreeve-tunnel",
		"__Host-session=x; Secure; Path=/; Domain=x; a": "__Host-session=x; Secure; Path=/; a",
	} {
		got := strings.Join(CleanSetCookie([]string{line}), "|")
		if got != want {
			t.Errorf("%q becomes %q, want %q", line, got, want)
		}
		if c, err := http.ParseSetCookie(line); want != "" && err == nil {
			if again, err := http.ParseSetCookie(got); err != nil || again.Name != c.Name || again.Value != c.Value || again.Domain != "" {
				t.Errorf("%q becomes %+v, %v", line, again, err)
			}
		}
	}
}
