package policies

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
