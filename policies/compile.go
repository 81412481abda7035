package policies

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"portreeve.dev/policies/pathmatch"
)

// MaxLayers is how many documents a snapshot joins.
const MaxLayers = 8

// A Layer is one document of several that all have to allow.
type Layer struct {
	Name     string // "ceiling", "policy:web", "own"
	Version  int64
	Document *Document // nil denies everything
}

// A Snapshot is compiled layers: immutable, safe for concurrent use. A nil Snapshot denies everything.
type Snapshot struct {
	layers []layer
	rules  []rule // by layer, then by id, so that a lower index wins a tie whatever the order in the document
	hosts  hostIndex
	addrs  prefixIndex
	// denyAll is the index of a layer without a document, or -1.
	denyAll  int
	observes bool // some layer has an ObserveUntil
	dohOpen  bool // the first layer opens other resolvers, and none closes them
}

type layer struct {
	Layer
	observeUntil int64 // microseconds; 0: never
}

// rule is what Evaluate needs of a Rule, in one place and without a way to follow.
type rule struct {
	id       string
	expires  int64       // microseconds; never is the largest
	ports    []PortRange // after the first
	first    PortRange
	action   Action
	protos   Protocol
	tls      TLSMode
	layer    uint8
	opinions opinions
	inside   bool // methods or paths have to be compared
	anywhere bool // no ports, protocols, methods or paths restrict it
	named    bool // it names hosts or addresses, not everything
	methods  []string
	paths    []*pathmatch.Pattern
	source   *Rule
}

const never = math.MaxInt64

// Compile joins layers. All of them have to allow, and a deny in any of them wins; none at all deny everything.
// Documents are checked again, as they may have been built by hand, and copied.
func Compile(layers ...Layer) (*Snapshot, error) {
	if len(layers) > MaxLayers {
		return nil, fmt.Errorf("compiling %d layers: more than %d", len(layers), MaxLayers)
	}
	s := &Snapshot{denyAll: -1}
	total := 0
	for _, l := range layers {
		if l.Document != nil {
			total += len(l.Document.Rules)
		}
	}
	s.rules = make([]rule, 0, total)
	for i, l := range layers {
		if l.Document == nil {
			if s.denyAll < 0 {
				s.denyAll = i
			}
			s.layers = append(s.layers, layer{Layer: l})
			continue
		}
		normal, err := l.Document.Normal()
		if err != nil {
			return nil, fmt.Errorf("compiling %s: %w", l.Name, err)
		}
		l.Document = normal
		compiled := layer{Layer: l}
		if !normal.ObserveUntil.IsZero() {
			compiled.observeUntil, s.observes = normal.ObserveUntil.UnixMicro(), true
		}
		s.layers = append(s.layers, compiled)
		if err := s.addRules(uint8(i), normal); err != nil {
			return nil, fmt.Errorf("compiling %s: %w", l.Name, err)
		}
	}
	s.dohOpen = len(s.layers) > 0 && s.denyAll < 0 && s.layers[0].Document.DoH == DoHAllow
	for _, l := range s.layers {
		s.dohOpen = s.dohOpen && l.Document.DoH != DoHBlock
	}
	s.index()
	return s, nil
}

func (s *Snapshot) addRules(at uint8, d *Document) error {
	from := len(s.rules)
	for i := range d.Rules {
		compiled, err := compileRule(&d.Rules[i])
		if err != nil {
			return err
		}
		compiled.layer = at
		s.rules = append(s.rules, compiled)
	}
	slices.SortFunc(s.rules[from:], func(a, b rule) int { return strings.Compare(a.id, b.id) })
	return nil
}

func compileRule(r *Rule) (rule, error) {
	c := rule{
		id: r.ID, action: r.Action, protos: r.Protocols, tls: r.TLS, opinions: opinionsOf(r), inside: r.needsInside(),
		expires: never, first: r.Ports[0], ports: r.Ports[1:], methods: r.Methods, source: r,
	}
	c.named = !r.Any && !slices.Contains(r.CIDRs, everywhere[0]) && !slices.Contains(r.CIDRs, everywhere[1])
	c.anywhere = !c.inside && c.protos == AllProtocols && c.first == EveryPort
	if !r.ExpiresAt.IsZero() {
		c.expires = r.ExpiresAt.UnixMicro()
	}
	for _, text := range r.Paths {
		p, err := pathmatch.Compile(text)
		if err != nil {
			return c, err
		}
		c.paths = append(c.paths, p)
	}
	return c, nil
}

// index enters each rule that is not disabled under its destinations.
func (s *Snapshot) index() {
	var hosts hostBuilder
	var addrs prefixBuilder
	for i := range s.rules {
		r := s.rules[i].source
		if r.Disabled {
			continue
		}
		at := uint32(i)
		if r.Any {
			hosts.any = append(hosts.any, at)
		}
		for _, host := range r.Hosts {
			hosts.add(host, at)
		}
		for _, p := range r.CIDRs {
			addrs.add(p, at)
		}
	}
	s.hosts, s.addrs = hosts.build(), addrs.build()
}

// Layers returns the layers of the snapshot, with their documents in normal form. They must not be changed.
func (s *Snapshot) Layers() []Layer {
	if s == nil {
		return nil
	}
	out := make([]Layer, len(s.layers))
	for i, l := range s.layers {
		out[i] = l.Layer
	}
	return out
}

// Failure is what holds once the snapshot is no longer fresh, and for how long: the strictest of all layers.
func (s *Snapshot) Failure() (FailureMode, time.Duration) {
	if s == nil || len(s.layers) == 0 || s.denyAll >= 0 {
		return FailClosed, 0
	}
	stale := MaxStaleCap
	for _, l := range s.layers {
		if l.Document.FailureMode != FailLastKnown {
			return FailClosed, 0
		}
		stale = min(stale, l.Document.MaxStale)
	}
	return FailLastKnown, stale
}
