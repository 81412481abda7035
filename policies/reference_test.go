package policies

import "strings"

// reference is the evaluator as one would explain it, without an index and without regard for speed:
// it asks about each protocol by itself, looks at every rule of every layer, and puts the answers together. It shares no
// code with Evaluate that compares anything.
func reference(layers []Layer, r Request) Verdict {
	for _, l := range layers {
		if l.Document == nil {
			return Verdict{Reason: ReasonNoPolicy, Layer: l.Name, Version: l.Version}
		}
	}
	var asked Protocol
	for i := range protocolNames {
		if p := Protocol(1 << i); r.Stage == StageName || r.Protocol == 0 || r.Protocol == p {
			asked |= p
		}
	}
	holds, _ := refLayers(layers, r, asked, true)
	would, reason := refLayers(layers, r, asked, false)
	v := Verdict{Reason: reason}
	if holds == 0 {
		_, v.Reason = refLayers(layers, r, asked, true)
		v.Requestable = v.Reason == ReasonNoRule && r.Host != ""
		return v
	}
	v.Action, v.Protocols, v.Observed = Allow, holds, would == 0
	v.Requestable = false
	if r.Stage == StageName {
		v.Protocols = 0
	}
	v.TLS, v.Foreign, v.DNS, v.Log, v.Named = refAttributes(layers, r, holds)
	v.Inside = refInside(layers, r, asked)
	if v.Observed {
		v.Named = false
	}
	return refResolvers(layers, r, asked, v)
}

// refResolvers closes what leads to another resolver: in each layer that allows it without naming it exactly.
func refResolvers(layers []Layer, r Request, asked Protocol, v Verdict) Verdict {
	open := layers[0].Document.DoH == DoHAllow
	for _, l := range layers {
		open = open && l.Document.DoH != DoHBlock
	}
	if open {
		v.DoH = true
		return v
	}
	known := r.Host == "dns.google" || r.Stage != StageName && r.Port == 853 || r.Host == "" && r.Port == 443 && r.Addr.Unmap().String() == "8.8.8.8"
	if !known {
		return v
	}
	for _, l := range layers {
		some, exact := false, false
		for j := range l.Document.Rules {
			rule := &l.Document.Rules[j]
			for i := range protocolNames {
				if p := Protocol(1 << i); rule.Action != Allow || asked&p == 0 || !refMatch(rule, r, p) {
					continue
				}
				near := refCloseness(rule, r)
				some, exact = true, exact || r.Host != "" && near == 1000 || r.Host == "" && near == 2+r.Addr.Unmap().BitLen()
			}
		}
		switch {
		case !some || exact:
		case !r.Now.IsZero() && l.Document.ObserveUntil.After(r.Now):
			v.Reason, v.Observed, v.Named = ReasonDoH, true, false
		default:
			return Verdict{Reason: ReasonDoH}
		}
	}
	v.DoH = true
	return v
}

// refLayers returns the protocols that pass every layer, and why it is none.
func refLayers(layers []Layer, r Request, asked Protocol, observe bool) (Protocol, Reason) {
	pass, allowed, denied := Protocol(0), Protocol(0), Protocol(0)
	for i := range protocolNames {
		p := Protocol(1 << i)
		if asked&p == 0 {
			continue
		}
		allow, deny := true, false
		for _, l := range layers {
			if observe && !r.Now.IsZero() && l.Document.ObserveUntil.After(r.Now) {
				continue
			}
			some := false
			for j := range l.Document.Rules {
				rule := &l.Document.Rules[j]
				if !refMatch(rule, r, p) {
					continue
				}
				some = some || rule.Action == Allow
				deny = deny || rule.Action == Deny
			}
			allow = allow && some
		}
		if allow {
			allowed |= p
		}
		if deny {
			denied |= p
		}
		if allow && !deny {
			pass |= p
		}
	}
	switch {
	case pass != 0:
		return pass, ReasonAllowed
	case allowed != 0 || denied == asked:
		return 0, ReasonRuleDenied
	}
	return 0, ReasonNoRule
}

func refMatch(rule *Rule, r Request, p Protocol) bool {
	matched, _ := refWhy(rule, r, p)
	return matched
}

// refWhy also says whether a deny rule has to wait for the request.
func refWhy(rule *Rule, r Request, p Protocol) (matched, waits bool) {
	allow := rule.Action == Allow
	if rule.Disabled || refCloseness(rule, r) == 0 {
		return false, false
	}
	if !rule.ExpiresAt.IsZero() {
		if r.Now.IsZero() && allow || !r.Now.IsZero() && !r.Now.Before(rule.ExpiresAt) {
			return false, false
		}
	}
	inside := rule.Methods != nil || rule.Paths != nil
	everyPort := len(rule.Ports) == 1 && rule.Ports[0].First == 1 && rule.Ports[0].Last == 65535
	if r.Stage == StageName {
		if allow {
			return true, false
		}
		whole := everyPort && rule.Protocols == AllProtocols && !inside
		return whole, !whole
	}
	if rule.Protocols&p == 0 {
		return false, false
	}
	hasPort := false
	for _, q := range rule.Ports {
		hasPort = hasPort || q.First <= r.Port && r.Port <= q.Last
	}
	if !hasPort {
		return false, false
	}
	if !inside {
		return true, false
	}
	if r.Stage == StageConnect {
		return allow, !allow
	}
	hasMethod, hasPath := rule.Methods == nil, rule.Paths == nil
	for _, m := range rule.Methods {
		hasMethod = hasMethod || m == r.Method || !allow && m == strings.ToUpper(r.Method)
	}
	for _, text := range rule.Paths {
		hasPath = hasPath || refPaths(text, r.Path, !allow)
	}
	return hasMethod && hasPath, false
}

// refCloseness is 0 if the rule is not for the destination, and grows with how closely it names it.
func refCloseness(rule *Rule, r Request) int {
	best := 0
	if r.Host != "" {
		if rule.Any {
			best = max(best, 1)
		}
		for _, host := range rule.Hosts {
			if host == r.Host {
				best = max(best, 1000)
			}
			if strings.HasPrefix(host, "*.") && strings.HasSuffix(r.Host, host[1:]) {
				best = max(best, 1+len(host))
			}
		}
	}
	if r.Addr.IsValid() && (r.Host == "" || rule.Action == Deny) {
		for _, p := range rule.CIDRs {
			for _, a := range refAddrs(r.Addr, rule.Action == Deny) {
				if refHolds(p, a) {
					best = max(best, 2+p.Bits())
				}
			}
		}
	}
	return best
}

// refAttributes works out how the allowed protocols may be used.
func refAttributes(layers []Layer, r Request, holds Protocol) (tls TLSMode, foreign ForeignCredentials, dns DNSMode, log LogMode, named bool) {
	asked := AllProtocols
	if r.Protocol != 0 && r.Stage != StageName {
		asked = r.Protocol
	}
	var foreigns []ForeignCredentials
	var dnss []DNSMode
	var logs []LogMode
	named = true
	for _, l := range layers {
		var speaks, opens *Rule // the closest, and among the close ones the strictest
		for j := range l.Document.Rules {
			rule := &l.Document.Rules[j]
			matched, waits := false, false
			for i := range protocolNames {
				if p := Protocol(1 << i); asked&p != 0 {
					m, w := refWhy(rule, r, p)
					matched, waits = matched || m, waits || w
				}
			}
			if rule.Action == Deny && waits && rule.TLS == Inspect {
				tls = Inspect
			}
			if rule.Action == Deny || !matched {
				continue
			}
			if speaks == nil || refBefore(rule, speaks, r) {
				speaks = rule
			}
			if rule.Protocols&HTTPS != 0 && (opens == nil || refBefore(rule, opens, r)) {
				opens = rule
			}
		}
		if opens != nil && opens.TLS == Inspect {
			tls = Inspect
		}
		if speaks == nil {
			named = false
			continue
		}
		if speaks.Any {
			named = false
		}
		for _, p := range speaks.CIDRs {
			if p.Bits() == 0 {
				named = false
			}
		}
		if speaks.ForeignCredentials != nil {
			foreigns = append(foreigns, *speaks.ForeignCredentials)
		}
		if speaks.DNS != nil {
			dnss = append(dnss, *speaks.DNS)
		}
		if speaks.Log != nil {
			logs = append(logs, *speaks.Log)
		}
	}
	if holds&HTTPS == 0 {
		tls = Pass
	}
	return tls, strictest(foreigns), strictest(dnss), strictest(logs), named
}

func strictest[T ~uint8](opinions []T) (s T) {
	for i, o := range opinions {
		if i == 0 || o < s {
			s = o
		}
	}
	return s
}

func refBefore(a, b *Rule, r Request) bool {
	if x, y := refCloseness(a, r), refCloseness(b, r); x != y {
		return x > y
	}
	if a.TLS != b.TLS {
		return a.TLS == Inspect
	}
	value := func(f *ForeignCredentials) int {
		if f == nil {
			return 99
		}
		return int(*f)
	}
	if x, y := value(a.ForeignCredentials), value(b.ForeignCredentials); x != y {
		return x < y
	}
	return a.ID < b.ID
}

// refInside reports whether another method or path could matter: a deny rule compares them, or no allow rule of a layer does without.
func refInside(layers []Layer, r Request, asked Protocol) bool {
	for _, l := range layers {
		limited, plain := false, false
		for j := range l.Document.Rules {
			rule := l.Document.Rules[j]
			inside := rule.Methods != nil || rule.Paths != nil
			for i := range protocolNames {
				p := Protocol(1 << i)
				if asked&p == 0 {
					continue
				}
				matched, _ := refWhy(&rule, r, p)
				without := rule
				without.Methods, without.Paths = nil, nil
				speaks, waits := refWhy(&without, r, p)
				if rule.Action == Deny && inside && (speaks || waits) {
					return true
				}
				limited = limited || rule.Action == Allow && matched && inside
				plain = plain || rule.Action == Allow && matched && !inside
			}
		}
		if limited && !plain {
			return true
		}
	}
	return false
}

// refNames returns the rule and the layer that a verdict names: what allows in the last layer, what denies in the first that does, or the
// first layer that lacks a rule.
func refNames(layers []Layer, r Request, v Verdict) (rule, layer string) {
	var asked Protocol
	for i := range protocolNames {
		if p := Protocol(1 << i); r.Stage == StageName || r.Protocol == 0 || r.Protocol == p {
			asked |= p
		}
	}
	before := asked
	for _, l := range layers {
		if v.Action == Deny && !r.Now.IsZero() && l.Document.ObserveUntil.After(r.Now) {
			continue
		}
		var speaks, denies *Rule
		var allowed Protocol
		for j := range l.Document.Rules {
			one := &l.Document.Rules[j]
			matched := false
			for i := range protocolNames {
				if p := Protocol(1 << i); asked&p != 0 && refMatch(one, r, p) {
					matched = true
					if one.Action == Allow {
						allowed |= p
					}
				}
			}
			closer := func(than *Rule) bool {
				x, y := refCloseness(one, r), refCloseness(than, r)
				return x > y || x == y && one.ID < than.ID
			}
			switch {
			case !matched:
			case one.Action == Allow && (speaks == nil || refBefore(one, speaks, r)):
				speaks = one
			case one.Action == Deny && (denies == nil || closer(denies)):
				denies = one
			}
		}
		switch {
		case v.Reason == ReasonAllowed && speaks != nil:
			rule, layer = speaks.ID, l.Name
		case v.Reason == ReasonRuleDenied && denies != nil:
			return denies.ID, l.Name
		case v.Reason == ReasonNoRule && before&allowed == 0:
			return "", l.Name
		}
		before &= allowed
	}
	return rule, layer
}
