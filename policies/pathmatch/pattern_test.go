package pathmatch

import "testing"

func compile(t *testing.T, pattern string) *Pattern {
	t.Helper()
	p, err := Compile(pattern)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPatterns(t *testing.T) {
	tests := []struct {
		pattern string
		yes, no []string
	}{
		{"/", []string{"/"}, []string{"/a", "/a/"}},
		{"/v1", []string{"/v1", "/v1/"}, []string{"/", "/v", "/v11", "/v1/x", "/V1"}},
		{"/v1/", []string{"/v1", "/v1/"}, []string{"/v1/x"}},
		{"/v1/*", []string{"/v1/x", "/v1/x/", "/v1/*"}, []string{"/v1", "/v1/", "/v1/x/y", "/v2/x"}},
		{"/*/x", []string{"/a/x", "/*/x"}, []string{"/x", "/a/b/x", "/a/x/b"}},
		{"/v1/**", []string{"/v1", "/v1/", "/v1/x", "/v1/x/y/"}, []string{"/", "/v11", "/v2/v1", "/v"}},
		{"/**", []string{"/", "/a", "/a/b"}, nil},
		{"/repos/*/issues/**", []string{"/repos/a/issues", "/repos/a/issues/1"}, []string{"/repos/issues/1", "/repos/a/b/issues"}},
		{"/f-*.txt", []string{"/f-.txt", "/f-a.txt", "/f-.txt.txt"}, []string{"/f.txt", "/f-a.txtx", "/f-a/b.txt", "/xf-a.txt"}},
		{"/a*b*c", []string{"/abc", "/axbxbxc", "/abcc"}, []string{"/ab", "/acb", "/abcd"}},
		{"/a%2Ab", []string{"/a*b", "/a%2Ab"}, []string{"/axb", "/ab"}},
		{"/caf%c3%a9", []string{"/caf%C3%A9"}, []string{"/caf%C3%A8"}},
	}
	for _, tt := range tests {
		p := compile(t, tt.pattern)
		for _, path := range tt.yes {
			if !p.MatchAll(path) || !p.MatchAny(path) {
				t.Errorf("%q does not match %q", tt.pattern, path)
			}
		}
		for _, path := range tt.no {
			if p.MatchAll(path) || p.MatchAny(path) {
				t.Errorf("%q matches %q", tt.pattern, path)
			}
		}
	}
}

func TestEncodedSlashIsReadBothWays(t *testing.T) {
	tests := []struct {
		pattern, path string
		all, any      bool
	}{
		{"/v1/*", "/v1/a%2Fadmin", false, true},       // one segment, or two
		{"/v1/a/admin", "/v1/a%2Fadmin", false, true}, // denied, never allowed
		{"/admin/**", "/admin%2Fx", false, true},
		{"/v1/**", "/v1/a%2Fadmin", true, true},
		{"/**", "/a%2Fb", true, true},
		{"/@scope%2fname", "/@scope%2Fname", true, true},
		{"/@scope%2F*", "/@scope%2Fname", true, true},
		{"/@scope%2F*", "/@scope%2Fname%2Fx", false, true},
		{"/@scope/name", "/@scope/name", true, true},
		{"/@scope%2Fname", "/@scope/name", false, false},
		{"/a", "/a%2F", false, true},
		{"/b", "/a%2Fb", false, false},
	}
	for _, tt := range tests {
		p := compile(t, tt.pattern)
		if p.MatchAll(tt.path) != tt.all || p.MatchAny(tt.path) != tt.any {
			t.Errorf("%q on %q: all %v, any %v", tt.pattern, tt.path, p.MatchAll(tt.path), p.MatchAny(tt.path))
		}
	}
}

func TestSpellingMakesNoDifference(t *testing.T) {
	p := compile(t, "/@admin/a+b")
	for _, raw := range []string{"/@admin/a+b", "/%40admin/a+b", "/@%61dmin/a%2bb", "/x/../@admin/./a+b", "/@admin/a+b/"} {
		path, err := Canonical(raw)
		if err != nil || !p.MatchAny(path) || !p.MatchAll(path) {
			t.Errorf("%q, sent as %q, is not matched (%v)", raw, path, err)
		}
	}
	for _, raw := range []string{"/@admin/a%20b", "/@admin/ab", "/@admim/a+b"} {
		if path, err := Canonical(raw); err != nil || p.MatchAny(path) {
			t.Errorf("%q, sent as %q, is matched (%v)", raw, path, err)
		}
	}
}

func TestPatternsThatAreNone(t *testing.T) {
	for _, s := range []string{"", "v1", "*", "**", "/**/x", "/a**", "/***", "/a/**b", "/v1/**/**", "//", "/a;b", "/a%", "/../x", "https://x/"} {
		if p, err := Compile(s); err == nil {
			t.Errorf("Compile(%q) = %v", s, p)
		}
	}
}

func TestPatternNormalForm(t *testing.T) {
	for in, want := range map[string]string{"/v1/": "/v1", "/%7Ea/*": "/~a/*", "/": "/", "/**": "/**", "/a/**/": "/a/**", "/%2a": "/%2A"} {
		p := compile(t, in)
		if p.String() != want || compile(t, want).String() != want {
			t.Errorf("Compile(%q) is %q, want %q", in, p, want)
		}
	}
}

func TestMatchAllocatesNothing(t *testing.T) {
	p := compile(t, "/repos/*/*/pulls/**")
	if n := testing.AllocsPerRun(100, func() { p.MatchAll("/repos/a%2Fb/c/pulls/1") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A rule with many paths pays this for each.
func BenchmarkMatch(b *testing.B) {
	p, _ := Compile("/repos/*/*/pulls/**")
	for b.Loop() {
		p.MatchAll("/repos/owner/name/pulls/17")
	}
}
