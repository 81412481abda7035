package policies

import (
	"math"
	"strings"
)

// A clock is a request's time, for allowing and for denying. They differ when the time is not known: then every rule that
// ends has ended for the one and not for the other.
type clock struct{ allow, deny int64 }

func clockOf(r *Request) clock {
	if r.Now.IsZero() {
		return clock{allow: math.MaxInt64 - 1, deny: math.MinInt64}
	}
	now := r.Now.UnixMicro()
	return clock{now, now}
}

// A Why says whether a rule for this destination matched, or what was the first thing that did not fit.
type Why string

const (
	WhyMatched  Why = "matched"
	WhyDisabled Why = "disabled" // "enabled": false
	WhyExpired  Why = "expired"
	WhyPort     Why = "port"
	WhyProtocol Why = "protocol"
	WhyMethod   Why = "method"
	WhyPath     Why = "path"
	WhyStage    Why = "stage" // a deny rule that can't tell yet: it will be asked again when more is known
	WhyHost     Why = "host"  // the host is close to, but not what the rule names
)

// why compares everything but the destination. At StageConnect with no protocol known, a rule matches if one of its protocols may come.
func (c *rule) why(r *Request, now clock) Why {
	allow := c.action == Allow
	if allow && c.expires <= now.allow || !allow && c.expires <= now.deny {
		return WhyExpired
	}
	if r.Stage == StageName {
		if allow || c.anywhere {
			return WhyMatched
		}
		return WhyStage
	}
	if !c.hasPort(r.Port) {
		return WhyPort
	}
	if r.Protocol != 0 && c.protos&r.Protocol == 0 {
		return WhyProtocol
	}
	if !c.inside {
		return WhyMatched
	}
	if r.Stage == StageConnect {
		if allow {
			return WhyMatched
		}
		return WhyStage
	}
	if !c.hasMethod(r.Method) {
		return WhyMethod
	}
	if !c.hasPath(r.Path) {
		return WhyPath
	}
	return WhyMatched
}

func (c *rule) hasPort(p uint16) bool {
	if c.first.Has(p) {
		return true
	}
	for _, more := range c.ports {
		if more.Has(p) {
			return true
		}
	}
	return false
}

// hasMethod compares exactly to allow. To deny it ignores the case, as some servers do.
func (c *rule) hasMethod(method string) bool {
	for _, m := range c.methods {
		if m == method || c.action == Deny && strings.EqualFold(m, method) {
			return true
		}
	}
	return len(c.methods) == 0
}

func (c *rule) hasPath(path string) bool {
	for _, p := range c.paths {
		if c.action == Allow && p.MatchAll(path) || c.action == Deny && p.MatchAny(path) {
			return true
		}
	}
	return len(c.paths) == 0
}
