package policies

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"portreeve.dev/policies/hostname"
	"portreeve.dev/policies/netaddr"
	"portreeve.dev/policies/pathmatch"
)

// Normal checks d and returns a copy in normal form. The error is Errors.
func (d *Document) Normal() (*Document, error) { return d.normal(nil) }

// normal is Normal of a document whose rules stand at origins in the text that they come from; nil: where they stand in d.
func (d *Document) normal(origins []string) (*Document, error) {
	var errs Errors
	origin := func(i int) string {
		if origins != nil {
			return origins[i]
		}
		return at("rules", i)
	}
	out := &Document{
		Rules:        make([]Rule, len(d.Rules)),
		ObserveUntil: normalTime(d.ObserveUntil, inDocument, "observe_until", &errs),
		FailureMode:  d.FailureMode,
		MaxStale:     normalStale(d, &errs),
		DoH:          d.DoH,
		Tests:        normalTests(d.Tests, &errs),
	}
	if int(d.DoH) >= len(dohNames) {
		errs.add("doh", "", "%v", d.DoH)
	}
	if len(d.Rules) > MaxRules {
		errs.add("rules", "", "%d rules are more than %d", len(d.Rules), MaxRules)
		return nil, errs
	}
	seen := make(map[string]int, len(d.Rules))
	for i := range d.Rules {
		path := func(field string) string { return origin(i) + field }
		out.Rules[i] = d.Rules[i]
		normalRule(&out.Rules[i], path, &errs)
		if first, twice := seen[out.Rules[i].ID]; twice {
			errs.add(path(".id"), "each rule has an id of its own", "%q is the id of %s too", out.Rules[i].ID, origin(first))
		}
		seen[out.Rules[i].ID] = i
	}
	if err := errs.orNil(); err != nil {
		return nil, err
	}
	return out, nil
}

func normalStale(d *Document, errs *Errors) time.Duration {
	switch {
	case int(d.FailureMode) >= len(failureNames):
		errs.add("failure_mode", "", "%v", d.FailureMode)
	case d.FailureMode == FailClosed && d.MaxStale != 0:
		errs.add("max_stale", `needs "failure_mode": "last_known"`, "has no effect when the policy fails closed")
	case d.FailureMode == FailLastKnown && d.MaxStale == 0:
		return defaultMaxStale
	case d.MaxStale < 0 || d.MaxStale > MaxStaleCap:
		errs.add("max_stale", "", "%v is not between 0 and %v", d.MaxStale, MaxStaleCap)
	}
	return d.MaxStale
}

// normalTime cuts to microseconds, which is what databases keep and Evaluate compares.
func normalTime(t time.Time, path pathFunc, field string, errs *Errors) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	t = t.UTC().Truncate(time.Microsecond)
	if t.Year() < 1970 || t.Year() > 9999 {
		errs.add(path(field), "", "the year %d is out of range", t.Year())
	}
	return t
}

// A pathFunc makes the path of a field, once there is an error to tell.
type pathFunc func(field string) string

func inDocument(field string) string { return field }

func normalRule(r *Rule, path pathFunc, errs *Errors) {
	if !validID(r.ID) {
		errs.add(path(".id"), "use 1 to 64 of a-z, 0-9, dot, dash and underscore", "%q is not an id", r.ID)
	}
	if r.Action > Allow {
		errs.add(path(".action"), "", "%v", r.Action)
	}
	normalTargets(r, path, errs)
	normalProtocols(r, path, errs)
	normalPorts(r, path, errs)
	normalInside(r, path, errs)
	normalOpinions(r, path, errs)
	r.ExpiresAt = normalTime(r.ExpiresAt, path, ".expires_at", errs)
	if len(r.Message) > MaxMessage || !utf8.ValidString(r.Message) || strings.ContainsFunc(r.Message, unicode.IsControl) {
		errs.add(path(".message"), "", "is not one line of at most %d bytes", MaxMessage)
	}
}

func validID(id string) bool {
	if len(id) < 1 || len(id) > 64 {
		return false
	}
	for i := 0; i < len(id); i++ {
		c := id[i]
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

func normalTargets(r *Rule, path pathFunc, errs *Errors) {
	given := 0
	for _, is := range []bool{len(r.Hosts) > 0, r.Any, len(r.CIDRs) > 0} {
		if is {
			given++
		}
	}
	switch {
	case given == 0:
		errs.add(path(""), "give hosts, cidrs or any: true", "the rule has no destination")
	case given > 1:
		errs.add(path(""), "write one rule for each", "hosts, cidrs and any exclude each other")
	}
	if len(r.Hosts) > MaxTargets || len(r.CIDRs) > MaxTargets {
		errs.add(path(""), "", "more than %d destinations", MaxTargets)
		return
	}
	r.Hosts, r.CIDRs = slices.Clone(r.Hosts), slices.Clone(r.CIDRs)
	for i, host := range r.Hosts {
		normal, problem, hint := checkHost(host, r.Action, r.Shared)
		if problem != "" {
			errs.add(path(fmt.Sprintf(".hosts[%d]", i)), hint, "%s", problem)
		}
		r.Hosts[i] = normal
	}
	for i, p := range r.CIDRs {
		normal, problem := checkCIDR(p, r.Action)
		if problem != "" {
			errs.add(path(fmt.Sprintf(".cidrs[%d]", i)), "", "%s", problem)
		}
		r.CIDRs[i] = normal
	}
	r.Hosts, r.CIDRs = unique(r.Hosts), unique(r.CIDRs)
}

// checkHost returns the host of a rule in normal form, or what is wrong with it. What is too wide to allow may be denied.
func checkHost(host string, action Action, shared bool) (normal, problem, hint string) {
	base, wildcard := strings.CutPrefix(host, "*.")
	if !wildcard && strings.Contains(host, "*") || strings.Contains(base, "*") {
		hint = "a star stands only at the start: *.x is every name below x"
		if host == "*" {
			hint = "for every host write any: true instead of hosts"
		}
		return "", fmt.Sprintf("%q is not a host", host), hint
	}
	name, err := hostname.Normalize(base)
	if err != nil {
		if errors.Is(err, hostname.ErrAddress) {
			hint = "write addresses under cidrs"
		}
		return "", err.Error(), hint
	}
	section := hostname.NotSuffix
	if action == Allow {
		section = hostname.SuffixSection(name)
	}
	switch {
	case section == hostname.ICANN:
		return "", fmt.Sprintf("%q is a public suffix, below which anybody may own a name", name), "name the domains that you need"
	case wildcard && !shared && section == hostname.Private:
		return "", fmt.Sprintf("names below %q belong to its many customers", name), "name the hosts that you need, or say shared: true"
	case wildcard && !shared && section == hostname.Unlisted:
		return "", fmt.Sprintf("%q is a whole top-level domain", name), "name the domains that you need, or say shared: true"
	}
	if wildcard {
		name = "*." + name
	}
	return name, "", ""
}

func checkCIDR(p netip.Prefix, action Action) (normal netip.Prefix, problem string) {
	normal, err := netaddr.CanonicalPrefix(p)
	if err != nil {
		return normal, err.Error()
	}
	for _, hard := range hardRanges {
		if action == Allow && netaddr.Within(normal, hard) {
			return normal, fmt.Sprintf("%v lies in %v, which is closed to everybody", normal, hard)
		}
	}
	return normal, ""
}

func normalProtocols(r *Rule, path pathFunc, errs *Errors) {
	if r.Protocols&^AllProtocols != 0 {
		errs.add(path(".protocols"), "", "%#x is not known", uint8(r.Protocols))
	}
	if r.Protocols != 0 {
		return
	}
	switch {
	case r.Action == Allow:
		r.Protocols = HTTPS
	case r.needsInside():
		r.Protocols = HTTPS | HTTP
	default:
		r.Protocols = AllProtocols
	}
}

func normalPorts(r *Rule, path pathFunc, errs *Errors) {
	r.Ports = slices.Clone(r.Ports)
	switch {
	case len(r.Ports) > MaxPorts:
		errs.add(path(".ports"), "", "more than %d entries", MaxPorts)
		return
	case len(r.Ports) == 0 && r.Action == Deny:
		r.Ports = []PortRange{EveryPort}
	case len(r.Ports) == 0 && len(r.CIDRs) > 0:
		errs.add(path(".ports"), "", "a rule for addresses names its ports")
	case len(r.Ports) == 0:
		for i, p := range protocolPorts {
			switch {
			case r.Protocols&(1<<i) == 0:
			case p == 0:
				errs.add(path(".ports"), "", "%s has no port of its own, name them", protocolNames[i])
			default:
				r.Ports = append(r.Ports, Port(p))
			}
		}
	}
	for i, p := range r.Ports {
		if p.First == 0 || p.First > p.Last {
			errs.add(path(fmt.Sprintf(".ports[%d]", i)), "write a number from 1 to 65535, or a range like \"8000-8099\"", "%v is not a port", p)
		}
	}
	r.Ports = mergePorts(r.Ports)
}

// mergePorts sorts, and joins what overlaps or touches.
func mergePorts(ports []PortRange) []PortRange {
	slices.SortFunc(ports, func(a, b PortRange) int { return int(a.First) - int(b.First) })
	out := ports[:0]
	for _, p := range ports {
		if n := len(out); n > 0 && int(p.First) <= int(out[n-1].Last)+1 {
			out[n-1].Last = max(out[n-1].Last, p.Last)
			continue
		}
		out = append(out, p)
	}
	return out
}

const insideOfPassed = "can't be seen in TLS that is passed through"

// normalInside checks what only a connection that is seen inside can keep.
func normalInside(r *Rule, path pathFunc, errs *Errors) {
	if r.TLS > Inspect {
		errs.add(path(".tls"), "", "%v", r.TLS)
	}
	if r.TLS == Inspect && r.Protocols&HTTPS == 0 {
		errs.add(path(".tls"), "add https to the protocols", "inspect opens https only")
	}
	if r.TLS == Inspect && r.Action == Deny && !r.needsInside() {
		errs.add(path(".tls"), "", "inspect has no effect in a deny rule without methods or paths")
	}
	if r.needsInside() {
		field := ".methods"
		if len(r.Methods) == 0 {
			field = ".paths"
		}
		if blind := r.Protocols &^ (HTTPS | HTTP); blind != 0 {
			errs.add(path(field), "use the protocols https and http only", "can't be seen in %v", blind)
		}
		if r.Protocols&HTTPS != 0 && r.TLS == Pass {
			errs.add(path(field), "add tls: inspect", insideOfPassed)
		}
	}
	if len(r.Methods) > MaxMethods || len(r.Paths) > MaxPaths {
		errs.add(path(""), "", "more than %d methods or %d paths", MaxMethods, MaxPaths)
		return
	}
	r.Methods, r.Paths = slices.Clone(r.Methods), slices.Clone(r.Paths)
	for i, m := range r.Methods {
		r.Methods[i] = strings.ToUpper(m)
		if !validMethod(r.Methods[i]) {
			errs.add(path(fmt.Sprintf(".methods[%d]", i)), "", "%q is not a method that we let through", m)
		}
	}
	for i, text := range r.Paths {
		p, err := pathmatch.Compile(text)
		if err != nil {
			errs.add(path(fmt.Sprintf(".paths[%d]", i)), "", "%v", err)
			continue
		}
		r.Paths[i] = p.String()
	}
	r.Methods, r.Paths = unique(r.Methods), unique(r.Paths)
}

// validMethod refuses what is no token, and the two methods that no request of a sandbox may have in any case.
func validMethod(m string) bool {
	if m == "" || len(m) > 32 || m == "CONNECT" || m == "TRACE" {
		return false
	}
	for i := 0; i < len(m); i++ {
		if c := m[i]; !('A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return true
}

func normalOpinions(r *Rule, path pathFunc, errs *Errors) {
	if f := r.ForeignCredentials; f != nil {
		switch {
		case *f > ForeignAllow:
			errs.add(path(".foreign_credentials"), "", "%v", *f)
		case r.Action == Deny:
			errs.add(path(".foreign_credentials"), "", "has no effect in a deny rule")
		case *f != ForeignAllow && !r.seesInside():
			errs.add(path(".foreign_credentials"), "add tls: inspect", "%v can't be kept where TLS is passed through", *f)
		}
	}
	if m := r.DNS; m != nil {
		switch {
		case *m > DNSReal:
			errs.add(path(".dns"), "", "%v", *m)
		case r.Action == Deny || len(r.CIDRs) > 0:
			errs.add(path(".dns"), "", "is for allowed hosts only")
		}
	}
	if m := r.Log; m != nil && *m > LogCount {
		errs.add(path(".log"), "", "%v", *m)
	}
}

// unique drops what came before, and makes nil of nothing.
func unique[T comparable](all []T) []T {
	if len(all) == 0 {
		return nil
	}
	if len(all) == 1 {
		return all
	}
	seen := make(map[T]bool, len(all))
	out := all[:0]
	for _, v := range all {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}
