package policies

import (
	"strings"
	"time"
)

// Below returns the closest wildcard under which the host, in normal form, is allowed at that time, without its "*."; empty where some
// allow rule names the host itself, or only rules for everything allow it. A sandbox chooses the names below a wildcard, so that they can carry
// something out to whoever answers for it.
func (s *Snapshot) Below(host string, now time.Time) (wildcard string) {
	if s == nil {
		return ""
	}
	at := clockOf(&Request{Now: now})
	x := &s.hosts
	allows := func(in span) bool {
		for _, i := range x.rules[in.from:in.to] {
			if c := &s.rules[i]; c.action == Allow && c.expires > at.allow {
				return true
			}
		}
		return false
	}
	if in, ok := x.exact[host]; ok && allows(in) {
		return ""
	}
	for _, rest, more := strings.Cut(host, "."); more; _, rest, more = strings.Cut(rest, ".") {
		if in, ok := x.suffix[rest]; ok && allows(in) {
			return rest
		}
	}
	return ""
}
