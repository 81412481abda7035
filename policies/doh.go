package policies

import "net/netip"

// resolvers closes the ways to other resolvers than ours: known ones, by name and by address, and the port of DNS over TLS. They stay open under
// doh: allow, and in each layer whose allow rule names the host, or the one address, exactly: its author meant it.
func (e *evaluation) resolvers(v *Verdict) {
	if e.s.dohOpen {
		v.DoH = true
		return
	}
	if !otherResolver(e.r) {
		return
	}
	exact := uint16(rankExact)
	if e.r.Host == "" {
		exact = rankPrefix + uint16(e.r.Addr.Unmap().BitLen())
	}
	for i := range e.s.layers {
		st, l := &e.states[i], &e.s.layers[i]
		if st.best == 0 || st.bestRank >= exact {
			continue
		}
		if l.observeUntil > e.now.allow { // it only watches
			v.Reason, v.Rule, v.Layer, v.Version = ReasonDoH, e.s.rules[st.best-1].id, l.Name, l.Version
			v.Observed, v.Named = true, false
			continue
		}
		*v = Verdict{Reason: ReasonDoH, Rule: e.s.rules[st.best-1].id, Layer: l.Name, Version: l.Version}
		return
	}
	v.DoH = true
}

const portDoT = 853

// otherResolver reports whether the request is to a resolver that is known to everybody, as far as is known at its stage.
func otherResolver(r *Request) bool {
	if r.Stage != StageName && r.Port == portDoT {
		return true
	}
	if r.Host == "" {
		return r.Port == 443 && resolverAddrs[r.Addr.Unmap()]
	}
	return ResolverHost(r.Host)
}

// ResolverHost reports whether the host, in normal form, is a public resolver that is asked over HTTPS or TLS, or a relay that
// resolves for its clients.
func ResolverHost(host string) bool {
	dots := 0
	for i := len(host) - 1; i > 0; i-- {
		if host[i] != '.' {
			continue
		}
		if dots++; dots > 1 && resolverHosts[host[i+1:]] {
			return true
		}
		if dots == 4 {
			return false
		}
	}
	return resolverHosts[host]
}

// resolverHosts are names of two to four labels; each stands for everything below it as well. use-application-dns.net is what Firefox asks for to
// hear whether it should leave DNS to the system.
var resolverHosts = map[string]bool{
	"cloudflare-dns.com": true, "cloudflare-gateway.com": true, "one.one.one": true, "dns.cloudflare.com": true,
	"dns.google": true, "dns.google.com": true, "dns64.dns.google": true,
	"dns.quad9.net": true, "dns9.quad9.net": true, "dns10.quad9.net": true, "dns11.quad9.net": true, "dns12.quad9.net": true,
	"doh.opendns.com": true, "dns.opendns.com": true, "familyshield.opendns.com": true, "sandbox.opendns.com": true, "doh.umbrella.com": true, "dns.umbrella.com": true,
	"adguard-dns.com": true, "dns.adguard.com": true, "dns-family.adguard.com": true, "dns-unfiltered.adguard.com": true,
	"dns.nextdns.io": true, "dns1.nextdns.io": true, "dns2.nextdns.io": true, "chromium.dns.nextdns.io": true,
	"doh.cleanbrowsing.org": true, "dns.cleanbrowsing.org": true,
	"dns.controld.com": true, "freedns.controld.com": true,
	"dns.mullvad.net": true, "doh.mullvad.net": true, "base.dns.mullvad.net": true,
	"dns.sb": true, "dns0.eu": true, "dnsforge.de": true, "pi-dns.com": true, "blahdns.com": true, "tiar.app": true, "rethinkdns.com": true, "wikimedia-dns.org": true,
	"dns.alidns.com": true, "doh.pub": true, "dot.pub": true, "dns.pub": true, "doh.360.cn": true, "dot.360.cn": true, "dns.rubyfish.cn": true, "dns.twnic.tw": true,
	"doh.applied-privacy.net": true, "dot1.applied-privacy.net": true, "doh.libredns.gr": true, "dot.libredns.gr": true,
	"dns.switch.ch": true, "dns.digitale-gesellschaft.ch": true, "ordns.he.net": true, "doh.ffmuc.net": true, "dot.ffmuc.net": true,
	"doh.xfinity.com": true, "dot.xfinity.com": true, "dns.comcast.net": true, "dns.apple.com": true, "mask.icloud.com": true, "mask-h2.icloud.com": true,
	"doh.li": true, "dot.li": true, "doh.seby.io": true, "dot.seby.io": true, "doh.dns4all.eu": true, "joindns4.eu": true, "anycast.uncensoreddns.org": true,
	"dns.njal.la": true, "dns.aa.net.uk": true, "dns.surfsharkdns.com": true, "dns.bebasid.com": true,
	"use-application-dns.net": true,
}

var resolverAddrs = func() map[netip.Addr]bool {
	m := make(map[netip.Addr]bool)
	for _, s := range []string{
		"1.1.1.1", "1.0.0.1", "1.1.1.2", "1.0.0.2", "1.1.1.3", "1.0.0.3", "8.8.8.8", "8.8.4.4", "9.9.9.9", "9.9.9.10", "9.9.9.11", "149.112.112.112", "149.112.112.10",
		"149.112.112.11", "208.67.222.222", "208.67.220.220", "208.67.222.123", "208.67.220.123", "94.140.14.14", "94.140.15.15", "94.140.14.15", "94.140.15.16",
		"76.76.2.0", "76.76.10.0", "185.228.168.9", "185.228.169.9", "185.228.168.168", "223.5.5.5", "223.6.6.6", "1.12.12.12", "120.53.53.53", "194.242.2.2", "193.110.81.0", "185.222.222.222",
		"2606:4700:4700::1111", "2606:4700:4700::1001", "2001:4860:4860::8888", "2001:4860:4860::8844", "2620:fe::fe", "2620:fe::9", "2a10:50c0::ad1:ff",
	} {
		m[netip.MustParseAddr(s)] = true
	}
	return m
}()
