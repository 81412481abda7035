package self

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// How much of a policy one answer tells, and how often the evaluator is asked for it.
const (
	maxReach  = 500
	maxProbes = 50_000
)

// A reachable is one destination that every layer lets through.
type reachable struct {
	To        string   `json:"to"`
	Port      string   `json:"port"`
	Protocols []string `json:"protocols"`
	Methods   []string `json:"methods,omitempty"` // none: every method
	Paths     []string `json:"paths,omitempty"`   // none: every path
	Until     string   `json:"until,omitempty"`
	Words     string   `json:"in_words"`
}

func (h *Handler) reach(w http.ResponseWriter, _ *http.Request, b egress.Binding) error {
	s, floor, err := h.fresh(b)
	if err != nil {
		return err
	}
	x := &explorer{h: h, b: b, s: s, floor: floor, now: h.cfg.Now()}
	all := x.explore()
	out := struct {
		Summary   string      `json:"summary"`
		Reach     []reachable `json:"reach"`
		Truncated bool        `json:"truncated,omitempty"` // there is more than is told
		Ask       string      `json:"ask"`
	}{Reach: all, Truncated: x.truncated, Ask: RequestURL}
	switch len(all) {
	case 0:
		out.Summary = "Nothing: no destination is allowed."
	case 1:
		out.Summary = "One destination; everything else is denied."
	default:
		out.Summary = fmt.Sprintf("%d destinations; everything else is denied.", len(all))
	}
	write(w, http.StatusOK, "application/json", out)
	return nil
}

// An explorer finds out what the layers let through together: each layer's allow rules say what could be, and the evaluator
// says whether it is. So no layer's name and no rule that is not in force is told.
type explorer struct {
	h         *Handler
	b         egress.Binding
	s         *policies.Snapshot
	floor     *policies.Floor
	now, end  time.Time // when it must be allowed: now, and at the end of the rule that says so; zero: for ever
	probes    int
	truncated bool
	found     []reachable
	seen      map[string]bool
}

func (x *explorer) explore() []reachable {
	x.seen, x.found = make(map[string]bool), []reachable{}
	for _, l := range x.s.Layers() {
		if l.Document == nil {
			return x.found
		}
		for i := range l.Document.Rules {
			r := &l.Document.Rules[i]
			if r.Action != policies.Allow || r.Disabled || !r.ExpiresAt.IsZero() && !x.now.Before(r.ExpiresAt) {
				continue
			}
			if x.end = r.ExpiresAt; !x.end.IsZero() {
				x.end = x.end.Add(-time.Microsecond)
			}
			x.rule(r)
		}
	}
	slices.SortFunc(x.found, func(a, b reachable) int { return strings.Compare(a.Words, b.Words) })
	return x.found
}

// made-up parts of a question, which only a rule that restricts nothing lets through.
const (
	anyLabel  = "portreeve-any."
	anyMethod = "PORTREEVE"
	anyPath   = "/portreeve-any/portreeve-any"
)

func (x *explorer) rule(r *policies.Rule) {
	type target struct {
		name string
		req  policies.Request
	}
	var targets []target
	for _, host := range r.Hosts {
		name := host
		if suffix, ok := strings.CutPrefix(host, "*."); ok {
			name = anyLabel + suffix
		}
		targets = append(targets, target{host, policies.Request{Host: name}})
	}
	if r.Any {
		targets = append(targets, target{"every host by name", policies.Request{Host: anyLabel + "example.com"}})
	}
	for _, p := range r.CIDRs {
		targets = append(targets, target{p.String(), policies.Request{Addr: p.Addr()}})
	}
	for _, t := range targets {
		for _, ports := range r.Ports {
			x.destination(r, t.name, t.req, ports)
		}
	}
}

func (x *explorer) destination(r *policies.Rule, name string, req policies.Request, ports policies.PortRange) {
	var open []string
	var methods, paths []string
	for _, word := range r.Protocols.Names() {
		req.Protocol, _ = policies.ParseProtocol(word)
		m, p, ok := x.through(r, req, ports)
		if !ok {
			continue
		}
		open = append(open, word)
		methods, paths = m, p
	}
	if len(open) == 0 {
		return
	}
	found := reachable{To: name, Port: ports.String(), Protocols: open, Methods: methods, Paths: paths}
	if ports == policies.EveryPort {
		found.Port = "any"
	}
	if !r.ExpiresAt.IsZero() {
		found.Until = r.ExpiresAt.UTC().Format(time.RFC3339)
	}
	found.Words = found.words()
	switch {
	case x.seen[found.Words]:
	case len(x.found) == maxReach:
		x.truncated = true
	default:
		x.seen[found.Words] = true
		x.found = append(x.found, found)
	}
}

// through reports whether every layer lets the protocol through on both ends of the ports, and which methods and paths of the
// rule's remain.
func (x *explorer) through(r *policies.Rule, req policies.Request, ports policies.PortRange) (methods, paths []string, ok bool) {
	for _, port := range []uint16{ports.First, ports.Last} {
		req.Stage, req.Port = policies.StageConnect, port
		if !x.allowed(req) {
			return nil, nil, false
		}
	}
	if req.Protocol&(policies.HTTPS|policies.HTTP) == 0 {
		return nil, nil, true
	}
	req.Stage = policies.StageRequest
	tryMethods, tryPaths := r.Methods, r.Paths
	if len(tryMethods) == 0 {
		tryMethods = []string{anyMethod}
	}
	if len(tryPaths) == 0 {
		tryPaths = []string{anyPath}
	}
	for _, m := range tryMethods {
		for _, p := range tryPaths {
			req.Method, req.Path = m, sample(p)
			if !x.allowed(req) {
				continue
			}
			ok = true
			if m != anyMethod && !slices.Contains(methods, m) {
				methods = append(methods, m)
			}
			if p != anyPath && !slices.Contains(paths, p) {
				paths = append(paths, p)
			}
		}
	}
	return methods, paths, ok
}

func (x *explorer) allowed(req policies.Request) bool {
	if x.probes++; x.probes > maxProbes {
		x.truncated = true
		return false
	}
	for _, req.Now = range []time.Time{x.now, x.end} {
		if !x.floor.Evaluate(x.b.Org, x.s, &req).Allowed() {
			return false
		}
	}
	return true
}

// sample is a path that the pattern matches.
func sample(pattern string) string {
	pattern = strings.TrimSuffix(pattern, "**")
	if strings.HasSuffix(pattern, "/") && pattern != "/" {
		pattern += "portreeve-any"
	}
	return strings.ReplaceAll(pattern, "*", "portreeve-any")
}

func (r *reachable) words() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, port %s", r.To, strings.Join(r.Protocols, " or "), r.Port)
	if len(r.Methods) > 0 {
		fmt.Fprintf(&b, ", only %s", strings.Join(r.Methods, ", "))
	}
	if len(r.Paths) > 0 {
		fmt.Fprintf(&b, ", only on %s", strings.Join(r.Paths, ", "))
	}
	if r.Until != "" {
		fmt.Fprintf(&b, ", until %s", r.Until)
	}
	return b.String()
}
