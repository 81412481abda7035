package policies

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"portreeve.dev/policies/netaddr"
)

// A target is one destination of a rule: a host, all names below one (suffix), every host, or a range.
type target struct {
	host, suffix string
	any          bool
	prefix       netip.Prefix
	field        string // of the rule: ".hosts[2]"
}

func (t target) String() string {
	switch {
	case t.host != "":
		return t.host
	case t.suffix != "":
		return "*." + t.suffix
	case t.any:
		return "every host"
	}
	return t.prefix.String()
}

func targetsOf(r *Rule) []target {
	if r.Any {
		return []target{{any: true, field: ".any"}}
	}
	all := make([]target, 0, len(r.Hosts)+len(r.CIDRs))
	for i, host := range r.Hosts {
		t := target{host: host, field: at(".hosts", i)}
		if base, wildcard := strings.CutPrefix(host, "*."); wildcard {
			t.host, t.suffix = "", base
		}
		all = append(all, t)
	}
	for i, p := range r.CIDRs {
		all = append(all, target{prefix: p, field: at(".cidrs", i)})
	}
	return all
}

// maxCandidates is how many rules are looked at for one destination. What lies beyond is not told: lint is help, and no judge.
const maxCandidates = 256

// A cover finds rules by destination: those that hold all of another one, or some of it.
type cover struct {
	hosts     hostBuilder
	addrs     prefixBuilder
	hostIx    hostIndex
	addrIx    prefixIndex
	backward  []named // hosts and suffixes by their labels from the end
	rules     []*Rule
	positions []int // of each rule in its document
}

type named struct {
	key  string
	rule uint32
}

func newCover() *cover { return &cover{} }

func (c *cover) add(r *Rule, position int) {
	at := uint32(len(c.rules))
	c.rules, c.positions = append(c.rules, r), append(c.positions, position)
	if r.Any {
		c.hosts.any = append(c.hosts.any, at)
	}
	for _, host := range r.Hosts {
		c.hosts.add(host, at)
		c.backward = append(c.backward, named{backward(strings.TrimPrefix(host, "*.")), at})
	}
	for _, p := range r.CIDRs {
		c.addrs.add(p, at)
	}
}

func (c *cover) build() {
	c.hostIx, c.addrIx = c.hosts.build(), c.addrs.build()
	slices.SortFunc(c.backward, func(a, b named) int { return strings.Compare(a.key, b.key) })
}

// backward is "com.example." for example.com: names below it begin with it.
func backward(host string) string {
	labels := strings.Split(host, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "."
}

// covering returns the position of the first rule that holds all of t and that fits, or -1.
func (c *cover) covering(t target, fits func(r *Rule, position int) bool) int {
	left := maxCandidates
	try := func(at uint32) int {
		if left--; left >= 0 && fits(c.rules[at], c.positions[at]) {
			return c.positions[at]
		}
		return -1
	}
	return c.outer(t, try)
}

func (c *cover) outer(t target, try func(uint32) int) int {
	each := func(rules []uint32) int {
		for _, at := range rules {
			if p := try(at); p >= 0 {
				return p
			}
		}
		return -1
	}
	if t.prefix.IsValid() {
		x := &c.addrIx
		for at := x.first(t.prefix.Addr()); at != outermost; at = x.nodes[at].parent {
			n := &x.nodes[at]
			if netaddr.Within(t.prefix, n.prefix) {
				if p := each(x.rules[n.rules.from:n.rules.to]); p >= 0 {
					return p
				}
			}
		}
		return -1
	}
	x := &c.hostIx
	if t.host != "" {
		if s, ok := x.exact[t.host]; ok {
			if p := each(x.rules[s.from:s.to]); p >= 0 {
				return p
			}
		}
	}
	if s, ok := x.suffix[t.suffix]; ok && t.suffix != "" {
		if p := each(x.rules[s.from:s.to]); p >= 0 {
			return p
		}
	}
	for name := t.host + t.suffix; name != ""; {
		_, name, _ = strings.Cut(name, ".")
		if s, ok := x.suffix[name]; ok && name != "" {
			if p := each(x.rules[s.from:s.to]); p >= 0 {
				return p
			}
		}
	}
	return each(x.any)
}

// touching returns the position of the first rule that holds some of t and that fits, or -1.
func (c *cover) touching(t target, fits func(r *Rule, position int) bool) int {
	left := maxCandidates
	try := func(at uint32) int {
		if left--; left >= 0 && fits(c.rules[at], c.positions[at]) {
			return c.positions[at]
		}
		return -1
	}
	if p := c.outer(t, try); p >= 0 {
		return p
	}
	switch {
	case t.any:
		for _, n := range c.backward {
			if p := try(n.rule); p >= 0 || left < 0 {
				return p
			}
		}
	case t.suffix != "":
		below := backward(t.suffix)
		at, _ := slices.BinarySearchFunc(c.backward, below, func(n named, key string) int { return strings.Compare(n.key, key) })
		for ; at < len(c.backward) && strings.HasPrefix(c.backward[at].key, below); at++ {
			if c.backward[at].key == below {
				continue // the apex, which is not below itself; the suffix itself was tried
			}
			if p := try(c.backward[at].rule); p >= 0 || left < 0 {
				return p
			}
		}
	case t.prefix.IsValid():
		x := &c.addrIx
		for at := x.first(t.prefix.Addr()) + 1; int(at) < len(x.nodes) && t.prefix.Contains(x.nodes[at].prefix.Addr()); at++ {
			n := &x.nodes[at]
			for _, rule := range x.rules[n.rules.from:n.rules.to] {
				if p := try(rule); p >= 0 || left < 0 {
					return p
				}
			}
		}
		for at := x.first(t.prefix.Addr()); at >= 0 && t.prefix.Contains(x.nodes[at].prefix.Addr()); at-- {
			n := &x.nodes[at]
			for _, rule := range x.rules[n.rules.from:n.rules.to] {
				if p := try(rule); p >= 0 || left < 0 {
					return p
				}
			}
		}
	}
	return -1
}

// A ceiling is the document above, as far as it is asked whether it may allow something.
type ceiling struct{ allow, deny *cover }

func newCeiling(d *Document, l *linter) *ceiling {
	c := &ceiling{newCover(), newCover()}
	if normal, err := d.Normal(); err == nil {
		for i := range normal.Rules {
			r := &normal.Rules[i]
			switch {
			case !l.live(r):
			case r.Action == Allow:
				c.allow.add(r, i)
			default:
				c.deny.add(r, i)
			}
		}
	}
	c.allow.build()
	c.deny.build()
	return c
}

// mayAllow reports whether some request to t that r allows may be allowed.
func (c *ceiling) mayAllow(t target, r *Rule) bool {
	if c.deny.covering(t, func(q *Rule, _ int) bool { return q.coversRest(r) }) >= 0 {
		return false
	}
	more := 0
	found := c.allow.touching(t, func(q *Rule, _ int) bool { more++; return q.meetsRest(r) })
	return found >= 0 || more >= maxCandidates
}

// coversRest reports whether q holds for every request that r holds for, as far as the destination doesn't matter.
func (q *Rule) coversRest(r *Rule) bool {
	return q.Protocols&r.Protocols == r.Protocols && portsCover(q.Ports, r.Ports) && outlives(q.ExpiresAt, r.ExpiresAt) &&
		methodsCover(q.Methods, r.Methods) && pathsCover(q.Paths, r.Paths)
}

// coversAll is coversRest with every destination of r being one of q's, word for word.
func (q *Rule) coversAll(r *Rule) bool {
	return q.Any == r.Any && containsAll(q.Hosts, r.Hosts) && containsAll(q.CIDRs, r.CIDRs) && q.coversRest(r)
}

// meetsRest reports whether some request may be meant by both.
func (q *Rule) meetsRest(r *Rule) bool {
	methods := len(q.Methods) == 0 || len(r.Methods) == 0 || slices.ContainsFunc(r.Methods, func(m string) bool { return slices.Contains(q.Methods, m) })
	return q.Protocols&r.Protocols != 0 && portsMeet(q.Ports, r.Ports) && methods
}

// saysTheSame reports whether it makes no difference which of two rules of one action speaks.
func (q *Rule) saysTheSame(r *Rule) bool {
	if q.Action == Deny {
		return r.Message == "" || q.Message == r.Message
	}
	narrow := q.Any && !r.Any || len(q.CIDRs) > 0 && q.wide() && !r.wide() // only what is named may use the floor's exemptions
	return !narrow && q.TLS == r.TLS && sameOpinion(q.ForeignCredentials, r.ForeignCredentials) && sameOpinion(q.DNS, r.DNS) && sameOpinion(q.Log, r.Log)
}

func (q *Rule) wide() bool {
	return slices.ContainsFunc(q.CIDRs, func(p netip.Prefix) bool { return p.Bits() == 0 })
}

func outlives(a, b time.Time) bool { return a.IsZero() || !b.IsZero() && !a.Before(b) }

func portsCover(outer, inner []PortRange) bool {
	for _, p := range inner {
		if !slices.ContainsFunc(outer, func(q PortRange) bool { return q.First <= p.First && p.Last <= q.Last }) {
			return false
		}
	}
	return true
}

func portsMeet(a, b []PortRange) bool {
	for _, p := range a {
		if slices.ContainsFunc(b, func(q PortRange) bool { return q.First <= p.Last && p.First <= q.Last }) {
			return true
		}
	}
	return false
}

func methodsCover(outer, inner []string) bool {
	return len(outer) == 0 || len(inner) > 0 && containsAll(outer, inner)
}

func containsAll[T comparable](outer, inner []T) bool {
	for _, v := range inner {
		if !slices.Contains(outer, v) {
			return false
		}
	}
	return true
}

func pathsCover(outer, inner []string) bool {
	if len(outer) == 0 {
		return true
	}
	for _, p := range inner {
		if !slices.ContainsFunc(outer, func(q string) bool { return pathCovers(q, p) }) {
			return false
		}
	}
	return len(inner) > 0
}

// pathCovers reports whether the pattern outer matches all that inner does; false also when that is hard to tell.
func pathCovers(outer, inner string) bool {
	if outer == inner {
		return true
	}
	if strings.Contains(outer, "%2F") || strings.Contains(inner, "%2F") {
		return false
	}
	body, deep := strings.CutSuffix(outer, "/**")
	rest, innerDeep := strings.CutSuffix(inner, "/**")
	a, b := split(body), split(rest)
	if len(b) < len(a) || !deep && (innerDeep || len(b) != len(a)) {
		return false
	}
	for i := range a {
		if a[i] != b[i] && a[i] != "*" {
			return false
		}
	}
	return true
}

func split(path string) []string {
	if path = strings.Trim(path, "/"); path == "" {
		return nil
	}
	return strings.Split(path, "/")
}
