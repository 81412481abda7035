package policies

import (
	"strings"
	"testing"
)

func TestOverrideHeaders(t *testing.T) {
	for _, name := range []string{
		"X-HTTP-Method-Override", "x-http-method-override", "X-Http-Method", "X-METHOD-OVERRIDE", "X-Original-URL", "X-Rewrite-Url",
		"X_HTTP_Method_Override", "X-Original_URL", "X-Original-Method", "X-Original-Uri", "X-Override-Url",
	} {
		if !OverrideHeader(name) {
			t.Errorf("%s: not known", name)
		}
	}
	for _, name := range []string{"", "X-HTTP-Method-Overrid", "X-HTTP-Method-Override2", "Method", "X-Request-Id", "X-Original-Host", "Content-Type"} {
		if OverrideHeader(name) {
			t.Errorf("%s: taken for an override", name)
		}
	}
	if n := testing.AllocsPerRun(100, func() { OverrideHeader("X-Http-Method-Override") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A verdict is Inside exactly if another method or path could have led to another one.
func TestInsideIsSaid(t *testing.T) {
	const (
		any    = `{"id": "any", "action": "allow", "hosts": ["a.test"], "tls": "inspect"}`
		reads  = `{"id": "reads", "action": "allow", "hosts": ["a.test"], "tls": "inspect", "methods": ["GET"]}`
		items  = `{"id": "items", "action": "allow", "hosts": ["a.test"], "tls": "inspect", "paths": ["/items/**"]}`
		writes = `{"id": "writes", "action": "deny", "hosts": ["a.test"], "tls": "inspect", "methods": ["POST"]}`
		admin  = `{"id": "admin", "action": "deny", "hosts": ["a.test"], "tls": "inspect", "paths": ["/admin/**"]}`
		other  = `{"id": "other", "action": "deny", "hosts": ["b.test"], "tls": "inspect", "methods": ["POST"]}`
		clear  = `{"id": "clear", "action": "deny", "hosts": ["a.test"], "protocols": ["http"], "methods": ["POST"]}`
		off    = `{"id": "off", "action": "deny", "hosts": ["a.test"], "tls": "inspect", "methods": ["POST"], "enabled": false}`
	)
	for name, tt := range map[string]struct {
		layers []string // rules of each
		inside bool
	}{
		"no limit":                          {[]string{any}, false},
		"an allow rule's method":            {[]string{reads}, true},
		"an allow rule's path":              {[]string{items}, true},
		"a limit beside no limit":           {[]string{any + "," + reads}, false},
		"a deny rule's method":              {[]string{any + "," + writes}, true},
		"a deny rule's path":                {[]string{any + "," + admin}, true},
		"a deny rule for another host":      {[]string{any + "," + other}, false},
		"a deny rule for another protocol":  {[]string{any + "," + clear}, false},
		"a deny rule that is off":           {[]string{any + "," + off}, false},
		"a limit in the upper layer alone":  {[]string{reads, any}, true},
		"a limit in the lower layer alone":  {[]string{any, items}, true},
		"a denial in the upper layer alone": {[]string{any + "," + writes, any}, true},
		"no limit in any layer":             {[]string{any, any + "," + reads}, false},
	} {
		s := compileRules(t, tt.layers...)
		for _, r := range []Request{request("a.test", "GET", "/items/1"), connect("a.test", 443, HTTPS)} {
			if v := s.Evaluate(&r); !v.Allowed() || v.Inside != tt.inside {
				t.Errorf("%s, %v: %+v", name, r.Stage, v)
			}
		}
	}
	if v := compileRules(t, reads).Evaluate(&Request{Stage: StageRequest, Host: "a.test", Port: 443, Protocol: HTTPS, Method: "POST", Path: "/", Now: testNow}); v.Allowed() || v.Inside {
		t.Errorf("%+v", v)
	}
	// A deny rule that matched, in a layer that only watches, has looked too.
	watched := compileText(t, `{"observe_until": "2026-02-01T00:00:00Z", "rules": [{"id": "a", "action": "deny", "any": true, "tls": "inspect", "methods": ["POST"]}]}`)
	r := request("a.test", "POST", "/")
	if v := watched.Evaluate(&r); !v.Allowed() || !v.Observed || !v.Inside {
		t.Errorf("%+v", v)
	}
	if !strings.Contains(ReasonOverride.Guidance(), "X-HTTP-Method-Override") {
		t.Error("the guidance does not name a header")
	}
}

func compileRules(t *testing.T, layers ...string) *Snapshot {
	t.Helper()
	documents := make([]string, len(layers))
	for i, rules := range layers {
		documents[i] = `{"rules": [` + rules + `]}`
	}
	return compileText(t, documents...)
}

func TestOverrideQuery(t *testing.T) {
	for query, want := range map[string]string{
		"_method=DELETE":            "_method",
		"a=1&_method=PUT&b":         "_method",
		"a=1;_METHOD":               "_METHOD",
		"%5Fmetho%64=x":             "%5Fmetho%64",
		"%20.method=x":              "%20.method",
		"+_method=x":                "+_method",
		"[method=x":                 "[method",
		"_method%00x=1":             "_method%00x",
		"_method[]=x":               "_method[]",
		"":                          "",
		"method=x":                  "",
		"_methods=x":                "",
		"x_method=x":                "",
		"a=_method":                 "",
		"%zz=1&%zz%5Fmethod=DELETE": "",
	} {
		if got := OverrideQuery(query); got != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { OverrideQuery("page=2&q=some+text&sort=asc") }); n != 0 {
		t.Errorf("%v allocations for an ordinary query", n)
	}
}

func FuzzOverrideQuery(f *testing.F) {
	f.Add("_method=DELETE&%zz=1")
	f.Fuzz(func(t *testing.T, raw string) {
		if found := OverrideQuery(raw); found != "" && (!strings.Contains(raw, found) || OverrideQuery(found+"=x") != found) {
			t.Fatalf("%q has %q", raw, found)
		}
	})
}
