package proxy

import (
	"net/netip"
	"strconv"
	"strings"

	"portreeve.dev/policies"
	"portreeve.dev/policies/hostname"
)

// named is what a request says about its destination.
type named struct {
	host string // in normal form; empty for an address
	addr netip.Addr
	port uint16
}

// identify reads an authority in full; ok is false when it can't be read in one way.
func identify(authority string, implied uint16) (n named, ok bool) {
	host, port := authority, implied
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && !strings.HasSuffix(authority, "]") {
		p, err := strconv.ParseUint(authority[i+1:], 10, 16)
		if err != nil || p == 0 || authority[i+1] == '0' || authority[i+1] == '+' {
			return n, false
		}
		host, port = authority[:i], uint16(p)
	}
	n.port = port
	if inside, ok := strings.CutPrefix(host, "["); ok {
		inside, ok = strings.CutSuffix(inside, "]")
		addr, err := netip.ParseAddr(inside)
		if !ok || err != nil || !addr.Is6() || addr.Zone() != "" {
			return n, false
		}
		n.addr = addr.Unmap()
		return n, true
	}
	if addr, err := netip.ParseAddr(host); err == nil && addr.Is4() {
		n.addr = addr
		return n, true
	}
	name, err := hostname.Normalize(host)
	n.host = name
	return n, err == nil
}

// impliedPort is the port of the connection's scheme.
func (c *connection) impliedPort() uint16 {
	if c.opened {
		return 443
	}
	return 80
}

// sameIdentity holds a request to the connection that it came on: the name (or address) and port that were judged, and
// that will be dialled. It returns what the request named instead.
func (c *connection) sameIdentity(authority string) (other named, reason policies.Reason) {
	if authority == c.authority {
		return other, ""
	}
	other, ok := identify(authority, c.impliedPort())
	switch {
	case !ok:
		return other, policies.ReasonHostInvalid
	case other.port != c.dst.Port(), other.host != c.host, c.host == "" && other.addr != c.dst.Addr():
		return other, policies.ReasonIdentityMismatch
	}
	return other, ""
}

// misdirected reports whether the policy would allow the other destination on a connection of its own.
func (c *connection) misdirected(other named, protocol policies.Protocol) bool {
	req := policies.Request{Stage: policies.StageConnect, Host: other.host, Addr: other.addr, Port: other.port, Protocol: protocol, Now: c.p.cfg.Now()}
	return c.judge(req).v.Allowed()
}
