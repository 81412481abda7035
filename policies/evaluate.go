package policies

import (
	"net/netip"

	"portreeve.dev/policies/netaddr"
)

// Evaluate decides. It is pure, allocates nothing, and is safe for concurrent use.
func (s *Snapshot) Evaluate(r *Request) (v Verdict) {
	if s == nil || len(s.layers) == 0 {
		return Denied(ReasonNoPolicy)
	}
	if s.denyAll >= 0 {
		l := &s.layers[s.denyAll]
		return Verdict{Reason: ReasonNoPolicy, Layer: l.Name, Version: l.Version}
	}
	e := evaluation{s: s, r: r}
	if reason := e.run(); reason != "" {
		return Denied(reason)
	}
	e.verdict(&v)
	if v.Allowed() {
		e.resolvers(&v)
	}
	return v
}

// run lets every rule for the destination speak, or returns the reason why none can.
func (e *evaluation) run() Reason {
	r := e.r
	if reason := malformed(r); reason != "" {
		return reason
	}
	e.now, e.mask = clockOf(r), AllProtocols
	if r.Protocol != 0 && r.Stage != StageName {
		e.mask = r.Protocol
	}
	if r.Host == "" {
		e.address(r.Addr, false)
		return ""
	}
	if !e.name(r.Host) {
		return ReasonHostInvalid
	}
	if r.Addr.IsValid() {
		e.address(r.Addr, true)
	}
	return ""
}

// malformed returns the reason to deny a request that no caller should have made.
func malformed(r *Request) Reason {
	switch {
	case r == nil || r.Stage > StageRequest:
		return ReasonParse
	case r.Host == "" && !r.Addr.IsValid(), r.Host == "" && r.Stage == StageName:
		return ReasonHostInvalid
	case r.Stage == StageName:
		return ""
	case r.Port == 0, r.Protocol != 0 && !r.Protocol.One():
		return ReasonParse
	case r.Stage == StageRequest && (r.Protocol&(HTTPS|HTTP) == 0 || r.Method == "" || r.Path == "" || r.Path[0] != '/'):
		return ReasonParse
	}
	return ""
}

// evaluation is the state of one call. It lives on the stack.
type evaluation struct {
	s      *Snapshot
	r      *Request
	now    clock
	mask   Protocol // what is asked about
	states [MaxLayers]state
}

// state is what the rules of one layer say. Positions are indexes into the snapshot's rules plus one; zero is none.
type state struct {
	allow, deny         Protocol
	best, worst         uint32 // the allow rule and the deny rule that speak for the layer
	bestRank, worstRank uint16
	tls                 TLSMode
	tlsRank             uint16
	inspect             bool // some deny rule has to see the inside
	looked              bool // some deny rule looked, or will look, at the method or the path
	plain               bool // some allow rule needs to know neither
}

// Ranks say how closely a rule names the destination. The closest allow rule speaks for its layer.
const (
	rankAny    = 1
	rankSuffix = 2   // plus the length of the suffix
	rankExact  = 512 // above every suffix
	rankPrefix = 2   // plus the bits of the prefix
)

// name applies the rules for a host. It reports whether the host is in normal form, as far as its bytes tell.
func (e *evaluation) name(host string) bool {
	x := &e.s.hosts
	if len(host) > 253 || host[len(host)-1] == '.' || host[0] == '.' {
		return false
	}
	// From the end: each dot begins a suffix of one more label.
	labels := 0
	for i := len(host) - 1; i >= 0; i-- {
		c := host[i]
		if c == '.' {
			if host[i+1] == '.' {
				return false
			}
			if x.deep(labels) {
				if found, ok := x.suffix[host[i+1:]]; ok {
					e.apply(x.rules[found.from:found.to], rankSuffix+uint16(len(host)-i), false)
				}
			}
			labels++
			continue
		}
		if !hostByte[c] {
			return false
		}
	}
	if found, ok := x.exact[host]; ok {
		e.apply(x.rules[found.from:found.to], rankExact, false)
	}
	e.apply(x.any, rankAny, false)
	return true
}

// hostByte is what a host in normal form is made of, beside dots.
var hostByte = func() (t [256]bool) {
	for _, c := range "abcdefghijklmnopqrstuvwxyz0123456789-_" {
		t[c] = true
	}
	return t
}()

// address applies the rules for an address. Deny rules also see the IPv4 address inside it, allow rules never do.
func (e *evaluation) address(addr netip.Addr, denyOnly bool) {
	addr = netaddr.Canonical(addr)
	e.ranges(addr, denyOnly)
	if addr.Is6() {
		embedded := netaddr.Embed(addr)
		for _, inside := range embedded.All() {
			e.ranges(inside, true)
		}
	}
}

func (e *evaluation) ranges(addr netip.Addr, denyOnly bool) {
	x := &e.s.addrs
	for at := x.first(addr); at != outermost; at = x.nodes[at].parent {
		n := &x.nodes[at]
		if n.prefix.Contains(addr) {
			e.apply(x.rules[n.rules.from:n.rules.to], rankPrefix+uint16(n.prefix.Bits()), denyOnly)
		}
	}
}

// apply lets rules for the destination speak.
func (e *evaluation) apply(rules []uint32, rank uint16, denyOnly bool) {
	for _, at := range rules {
		c := &e.s.rules[at]
		if denyOnly && c.action == Allow {
			continue
		}
		st := &e.states[c.layer]
		switch c.why(e.r, e.now) {
		case WhyMatched:
			if c.action == Allow {
				st.allowed(e.s, c, at, rank, e.r.Stage)
			} else {
				st.denied(c, at, rank)
			}
		case WhyMethod, WhyPath:
			st.looked = st.looked || c.action == Deny
		case WhyStage:
			if c.tls == Inspect {
				st.inspect = true
			}
			st.looked = st.looked || c.inside
		}
	}
}

func (st *state) denied(c *rule, at uint32, rank uint16) {
	st.deny |= c.protos
	st.looked = st.looked || c.inside
	if st.worst == 0 || rank > st.worstRank || rank == st.worstRank && at+1 < st.worst {
		st.worst, st.worstRank = at+1, rank
	}
}

func (st *state) allowed(s *Snapshot, c *rule, at uint32, rank uint16, stage Stage) {
	if stage == StageName {
		st.allow = AllProtocols
	}
	st.allow |= c.protos
	st.plain = st.plain || !c.inside
	if st.best == 0 || rank > st.bestRank || rank == st.bestRank && c.before(&s.rules[st.best-1], at+1 < st.best) {
		st.best, st.bestRank = at+1, rank
	}
	if c.protos&HTTPS != 0 && rank >= st.tlsRank {
		if rank > st.tlsRank {
			st.tls = Pass
		}
		st.tls, st.tlsRank = max(st.tls, c.tls), rank
	}
}

// before reports whether c speaks for its layer rather than other, which names the destination as closely: the stricter one does.
func (c *rule) before(other *rule, earlier bool) bool {
	if c.tls != other.tls {
		return c.tls > other.tls
	}
	if c.opinions.foreign != other.opinions.foreign {
		return c.opinions.foreign < other.opinions.foreign
	}
	return earlier
}
