package policies

import (
	"net/url"
	"strings"
)

// overrides are headers by which common servers take another method, or another path, than the request line's:
// method-override middlewares of Rails, Express, ASP.NET, Symfony, Laravel, Google's and OData's front ends; IIS, Zend and
// Symfony for the path. A dash stands for an underscore too, as CGI knows no difference.
var overrides = []string{
	"x-http-method-override", "x-http-method", "x-method-override", "x-original-method",
	"x-original-url", "x-rewrite-url", "x-original-uri", "x-override-url",
}

// OverrideHeader reports whether some servers take the method or the path from the header of that name, in any case.
// Where a verdict is Inside, a request with one is refused with ReasonOverride, whatever its value: what is judged
// has to be what the server does.
func OverrideHeader(name string) bool {
	for _, o := range overrides {
		if len(name) == len(o) && foldsTo(name, o) {
			return true
		}
	}
	return false
}

// foldsTo reports whether name is want without regard to case, and with underscores taken for dashes.
func foldsTo(name, want string) bool {
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case 'A' <= c && c <= 'Z':
			c += 'a' - 'A'
		case c == '_':
			c = '-'
		}
		if c != want[i] {
			return false
		}
	}
	return true
}

// overrideKey is the query parameter by which a request asks for another method: WordPress takes it with every method, Symfony, Laravel
// and Express's middleware with POST.
const overrideKey = "_method"

// OverrideQuery returns the parameter of a raw query from which some servers take the method, as it is written there; empty if there is
// none. PHP takes a dot, a space and an open bracket in a name for an underscore.
func OverrideQuery(raw string) string {
	for pair := range strings.FieldsFuncSeq(raw, func(c rune) bool { return c == '&' || c == ';' }) {
		key, _, _ := strings.Cut(pair, "=")
		if len(key) < len(overrideKey) {
			continue
		}
		name := strings.TrimLeft(unescaped(key), " ")
		if len(name) >= len(overrideKey) && strings.ContainsRune("_. [", rune(name[0])) && strings.EqualFold(name[1:len(overrideKey)], overrideKey[1:]) &&
			(len(name) == len(overrideKey) || name[len(overrideKey)] == '[' || name[len(overrideKey)] == 0) {
			return key
		}
	}
	return ""
}

// unescaped decodes what is an escape, and leaves what is none.
func unescaped(s string) string {
	if clear, err := url.QueryUnescape(s); err == nil {
		return clear
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if i+2 < len(s) && s[i] == '%' {
			if clear, err := url.QueryUnescape(s[i : i+3]); err == nil {
				b.WriteString(clear)
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return strings.ReplaceAll(b.String(), "+", " ")
}
