package secrets

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"portreeve.dev/policies/hostname"
	"portreeve.dev/policies/pathmatch"
)

// PlaceHeader is the place "a request header"; it is the only one so far.
const PlaceHeader = "header"

// valueMark is what a template puts the value for.
const valueMark = "{value}"

// A Grant says where a secret may go.
type Grant struct {
	Host     string   `json:"host"`               // exact, in normal form; never a wildcard
	Port     uint16   `json:"port,omitempty"`     // default 443
	Methods  []string `json:"methods,omitempty"`  // none: every method but TRACE and CONNECT
	Path     string   `json:"path,omitempty"`     // pattern as in a policy; default /**
	Place    string   `json:"place"`              // header
	Header   string   `json:"header"`             // its name
	Template string   `json:"template,omitempty"` // holds {value} once; default {value}
	Policies []string `json:"policies,omitempty"` // sandboxes under these named policies; none: all of the org
	Scrub    string   `json:"scrub,omitempty"`    // what of the host's answers is searched for the value: headers (default) or bodies

	pattern *pathmatch.Pattern
}

// headers that a grant may not set: they say what the message is and where it goes.
var unsettable = []string{"Connection", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive", "Proxy-Connection", "Te",
	"Trailer", "Transfer-Encoding", "Upgrade"}

// A FieldError names the wrong field of a grant.
type FieldError struct{ Field, Message string }

func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

func wrong(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// Complete fills in the defaults and checks g; the error is a *FieldError. An incomplete grant fits nothing.
func (g *Grant) Complete() error {
	host, err := hostname.Normalize(g.Host)
	if err != nil {
		return wrong("host", "%v", err)
	}
	g.Host = host
	if g.Port == 0 {
		g.Port = 443
	}
	if g.Path == "" {
		g.Path = "/**"
	}
	if g.Template == "" {
		g.Template = valueMark
	}
	if g.pattern, err = pathmatch.Compile(g.Path); err != nil {
		return wrong("path", "%v", err)
	}
	for i, m := range g.Methods {
		if m != strings.ToUpper(m) || !httpguts.ValidHeaderFieldName(m) || m == "TRACE" || m == "CONNECT" {
			return wrong(fmt.Sprintf("methods[%d]", i), "%q is not a method that can carry a secret; write it in capitals, like GET", m)
		}
	}
	if g.Scrub == "" {
		g.Scrub = ScrubHeaders
	}
	if g.Scrub != ScrubHeaders && g.Scrub != ScrubBodies {
		return wrong("scrub", "%q is not known; it is headers or bodies", g.Scrub)
	}
	return g.completePlace()
}

func (g *Grant) completePlace() error {
	if g.Place != PlaceHeader {
		return wrong("place", "%q is not known; it is header", g.Place)
	}
	if !httpguts.ValidHeaderFieldName(g.Header) {
		return wrong("header", "%q is not a header name", g.Header)
	}
	for _, h := range unsettable {
		if strings.EqualFold(h, g.Header) {
			return wrong("header", "%s can't be set: it says what the message is", h)
		}
	}
	if strings.Count(g.Template, valueMark) != 1 {
		return wrong("template", "it must hold %s once, like: Bearer %s", valueMark, valueMark)
	}
	if filled := strings.Replace(g.Template, valueMark, "x", 1); !fieldValue([]byte(filled)) {
		return wrong("template", "it has bytes that no header can hold")
	}
	return nil
}

// fits reports whether the request is one that g names. path is in canonical form.
func (g *Grant) fits(at Request, method, path string) bool {
	switch {
	case !g.reaches(at):
		return false
	case len(g.Methods) > 0 && !slices.Contains(g.Methods, method), method == "TRACE", method == "CONNECT":
		return false
	}
	return g.pattern != nil && g.pattern.MatchAll(path)
}

// reaches reports whether g is for the request's host and port, and for its sandbox's policy.
func (g *Grant) reaches(at Request) bool {
	return at.Host == g.Host && at.Port == g.Port && (len(g.Policies) == 0 || slices.Contains(g.Policies, at.Policy))
}

// basic reports whether the value is put where the Basic scheme has user and password.
func (g Grant) basic() bool {
	scheme, _, _ := strings.Cut(g.Template, " ")
	return strings.EqualFold(scheme, "Basic")
}
