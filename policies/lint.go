package policies

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"portreeve.dev/policies/hostname"
)

// LintOptions is what a document is looked at with.
type LintOptions struct {
	Now     time.Time // zero: nothing has expired
	Granted []string  // hosts to which some secret is granted
	Ceiling *Document // the document above this one; nil: this is the ceiling, or none is known
	Floor   *Floor    // nil: the one that is built in, without anybody's exemptions and ranges
	Org     string    // whose exemptions of the floor count
}

// A Finding is something in a document that is allowed, and probably not meant.
type Finding struct {
	Path    string `json:"path"`           // of the document in normal form
	Rule    string `json:"rule,omitempty"` // its id
	Code    string `json:"code"`           // of the closed list
	Message string `json:"message"`
	Hint    string `json:"hint"` // the field to change, and how
}

// The codes of findings. The list is closed.
const (
	FindInvalid         = "invalid"           // the language refuses it; other findings need a document that it doesn't
	FindNeverMatches    = "never_matches"     // deny rules of the document, or the floor, cover the allow rule, or one of its destinations
	FindOutsideCeiling  = "outside_ceiling"   // the ceiling never allows what the rule allows
	FindShadowed        = "shadowed"          // another rule already says all that the rule says
	FindPassWithGrant   = "pass_with_grant"   // a host with a grant would be let through unopened
	FindPassWithMethods = "pass_with_methods" // methods or paths limit what another rule, or the rule itself, lets through unseen
	FindSharedStorage   = "shared_storage"    // strangers can store or receive data there
	FindExpired         = "expired"           // the rule has ended
	FindBroad           = "broad"             // the rule allows very much
	FindTestWithoutRule = "test_without_rule" // a test names a rule that isn't there
)

// Findings returns the closed list of codes.
func Findings() []string {
	return []string{
		FindInvalid, FindNeverMatches, FindOutsideCeiling, FindShadowed, FindPassWithGrant, FindPassWithMethods, FindSharedStorage,
		FindExpired, FindBroad, FindTestWithoutRule,
	}
}

// maxFindings is how many are told of one document.
const maxFindings = 500

// Lint looks for what is probably not meant. It tells and changes nothing: no verdict depends on it. Rules that are not enabled
// are passed over, as somebody switched them off on purpose.
func Lint(d *Document, o LintOptions) []Finding {
	normal, err := d.Normal()
	if err != nil {
		return invalid(d, err)
	}
	l := &linter{LintOptions: o, d: normal, found: []Finding{}, allow: newCover(), deny: newCover(), under: newFloorCover(o.Floor, o.Org)}
	for i := range normal.Rules {
		if r := &normal.Rules[i]; l.live(r) {
			l.of(r.Action).add(r, i)
		}
	}
	l.allow.build()
	l.deny.build()
	if o.Ceiling != nil {
		l.above = newCeiling(o.Ceiling, l)
	}
	l.granted()
	for i := range normal.Rules {
		l.rule(i)
	}
	for i, t := range normal.Tests {
		if t.Rule != "" && !slices.ContainsFunc(normal.Rules, func(r Rule) bool { return r.ID == t.Rule }) {
			l.add(Finding{at("tests", i) + ".rule", t.Rule, FindTestWithoutRule, fmt.Sprintf("no rule of the document has the id %q", t.Rule), "name a rule of this document, or leave the field out"})
		}
	}
	slices.SortStableFunc(l.found, func(a, b Finding) int { return comparePaths(a.Path, b.Path) })
	return l.found
}

// invalid turns what the language refuses into findings.
func invalid(d *Document, err error) []Finding {
	found := []Finding{}
	var errs Errors
	if !errors.As(err, &errs) {
		return append(found, Finding{Code: FindInvalid, Message: err.Error()})
	}
	for _, e := range errs {
		f := Finding{Path: e.Path, Code: FindInvalid, Message: e.Message, Hint: e.Hint}
		if e.Message == insideOfPassed {
			f.Code = FindPassWithMethods
		}
		var i int
		if n, _ := fmt.Sscanf(e.Path, "rules[%d]", &i); n == 1 && i < len(d.Rules) {
			f.Rule = d.Rules[i].ID
		}
		found = append(found, f)
	}
	return found
}

// comparePaths puts rules[9] before rules[10], and the fields of one rule together.
func comparePaths(a, b string) int {
	listA, restA, _ := strings.Cut(a, "[")
	listB, restB, _ := strings.Cut(b, "[")
	numberA, _, _ := strings.Cut(restA, "]")
	numberB, _, _ := strings.Cut(restB, "]")
	return cmp.Or(strings.Compare(listA, listB), cmp.Compare(len(numberA), len(numberB)), strings.Compare(a, b))
}

// A linter looks at one document in normal form.
type linter struct {
	LintOptions
	d           *Document
	allow, deny *cover // its rules that count
	above       *ceiling
	under       *floorCover
	found       []Finding
}

func (l *linter) of(a Action) *cover {
	if a == Allow {
		return l.allow
	}
	return l.deny
}

// live reports whether the rule counts now.
func (l *linter) live(r *Rule) bool { return !r.Disabled && !l.expired(r) }

func (l *linter) expired(r *Rule) bool {
	return !r.ExpiresAt.IsZero() && !l.Now.IsZero() && !l.Now.Before(r.ExpiresAt)
}

func (l *linter) add(f Finding) {
	if len(l.found) < maxFindings {
		l.found = append(l.found, f)
	}
}

func (l *linter) tell(i int, field, code, hint, format string, args ...any) {
	l.add(Finding{at("rules", i) + field, l.d.Rules[i].ID, code, fmt.Sprintf(format, args...), hint})
}

func (l *linter) rule(i int) {
	r := &l.d.Rules[i]
	switch {
	case r.Disabled:
		return
	case l.expired(r):
		l.tell(i, ".expires_at", FindExpired, "remove the rule, or set a later expires_at", "the rule ended at %s", r.ExpiresAt.Format(time.RFC3339))
		return
	}
	if r.Action == Allow {
		l.broad(i, r)
		l.storage(i, r)
		if l.closed(i, r) || l.denied(i, r) {
			return
		}
		l.outside(i, r)
		if l.unlimited(i, r) {
			return
		}
	}
	l.shadowed(i, r)
}

// denied reports whether deny rules leave nothing of the rule, and tells what they take whole.
func (l *linter) denied(i int, r *Rule) bool {
	targets := targetsOf(r)
	by := make([]int, len(targets))
	whole := true
	for n, t := range targets {
		by[n] = l.deny.covering(t, func(q *Rule, _ int) bool { return q.coversRest(r) })
		whole = whole && by[n] >= 0
	}
	if whole {
		l.tell(i, "", FindNeverMatches, "remove one of the two, or narrow the deny rule", "the deny rule %q covers all that the rule allows, and a deny wins", l.d.Rules[by[0]].ID)
		return true
	}
	for n, t := range targets {
		if by[n] >= 0 {
			l.tell(i, t.field, FindNeverMatches, "remove it here, or narrow the deny rule", "the deny rule %q covers %s, and a deny wins", l.d.Rules[by[n]].ID, t)
		}
	}
	return false
}

func (l *linter) outside(i int, r *Rule) {
	if l.above == nil {
		return
	}
	targets := targetsOf(r)
	var out []target
	for _, t := range targets {
		if !l.above.mayAllow(t, r) {
			out = append(out, t)
		}
	}
	const hint = "allow it in the ceiling too, or remove it here"
	if len(out) == len(targets) {
		l.tell(i, "", FindOutsideCeiling, hint, "the ceiling allows nothing of it")
		return
	}
	for _, t := range out {
		l.tell(i, t.field, FindOutsideCeiling, hint, "the ceiling does not allow %s", t)
	}
}

// unlimited tells of limits that do nothing, as another rule lets everything through to the same place.
func (l *linter) unlimited(i int, r *Rule) bool {
	if !r.needsInside() {
		return false
	}
	for _, t := range targetsOf(r) {
		by := l.allow.covering(t, func(q *Rule, n int) bool {
			return n != i && !q.needsInside() && q.TLS == Pass && q.Protocols&r.Protocols&HTTPS != 0 && portsMeet(q.Ports, r.Ports)
		})
		if by >= 0 {
			l.tell(i, t.field, FindPassWithMethods, "narrow the other rule, or limit its methods and paths as well",
				"the rule limits methods or paths of %s, but the rule %q lets everything through to it, unopened", t, l.d.Rules[by].ID)
			return true
		}
	}
	return false
}

// ofPreset reports whether a rule has the id of a preset's.
func ofPreset(id string) bool {
	return slices.ContainsFunc(presetNames(), func(name string) bool { return strings.HasPrefix(id, name+".") })
}

func (l *linter) shadowed(i int, r *Rule) {
	first := -1
	for _, t := range targetsOf(r) {
		by := l.of(r.Action).covering(t, func(q *Rule, n int) bool {
			shared := ofPreset(q.ID) && ofPreset(r.ID) // what presets share nobody has to mend
			return n != i && !shared && q.saysTheSame(r) && q.coversRest(r) && !(n > i && r.coversAll(q))
		})
		if by < 0 {
			return
		}
		if first < 0 {
			first = by
		}
	}
	l.tell(i, "", FindShadowed, "remove it, or make it say something else", "the rule %q already says all of it", l.d.Rules[first].ID)
}

// granted asks for each host with a grant whether it would be let through unopened.
func (l *linter) granted() {
	if len(l.Granted) == 0 {
		return
	}
	s, err := Compile(Layer{Name: "policy", Document: l.d})
	if err != nil {
		return
	}
	told := map[string]bool{}
	for _, g := range l.Granted {
		host, err := hostname.Normalize(g)
		if err != nil {
			continue
		}
		l.allow.covering(target{host: host}, func(r *Rule, i int) bool {
			port := r.Ports[0].First
			if portsMeet(r.Ports, []PortRange{Port(443)}) {
				port = 443
			}
			q := Request{Stage: StageConnect, Host: host, Port: port, Protocol: HTTPS, Now: l.Now}
			v := s.Evaluate(&q)
			raw := r.Protocols &^ (HTTPS | HTTP)
			switch {
			case told[r.ID]:
			case v.Allowed() && v.TLS == Pass && v.Rule == r.ID:
				told[r.ID] = true
				l.tell(i, ".tls", FindPassWithGrant, "set tls: inspect", "a secret is granted on %s, and the rule would let the sandbox's own credentials through unseen", host)
			case raw != 0 && !r.Any && raw != AllProtocols&^(HTTPS|HTTP):
				told[r.ID] = true
				l.tell(i, ".protocols", FindPassWithGrant, "use the protocols https and http only", "a secret is granted on %s, where %v can't be opened and is refused", host, raw)
			}
			return false
		})
	}
}

// What is called broad: many more destinations than anybody can have thought of.
const (
	broadBits4 = 16
	broadBits6 = 32
	broadPorts = 1024
)

func (l *linter) broad(i int, r *Rule) {
	if r.Any {
		l.tell(i, ".any", FindBroad, "name the hosts that are needed", "the rule allows every host")
	}
	for n, p := range r.CIDRs {
		if p.Addr().Is4() && p.Bits() < broadBits4 || !p.Addr().Is4() && p.Bits() < broadBits6 {
			l.tell(i, at(".cidrs", n), FindBroad, "name the networks that are needed", "%v is very wide", p)
		}
	}
	for n, host := range r.Hosts {
		base, wildcard := strings.CutPrefix(host, "*.")
		if wildcard && hostname.SuffixSection(base) != hostname.NotSuffix {
			l.tell(i, at(".hosts", n), FindBroad, "name the hosts that are needed", "names below %s belong to many owners", base)
		}
	}
	ports := 0
	for _, p := range r.Ports {
		ports += int(p.Last) - int(p.First) + 1
	}
	if ports > broadPorts {
		l.tell(i, ".ports", FindBroad, "name the ports that are needed", "the rule allows %d ports", ports)
	}
}
