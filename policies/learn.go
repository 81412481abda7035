package policies

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"portreeve.dev/policies/netaddr"
	"portreeve.dev/policies/pathmatch"
)

// LearnOptions say what to draft of what was observed.
type LearnOptions struct {
	Hosts int    // at most so many names and addresses, those of the most sandboxes first; 0: 100
	Names bool   // of names that were only looked up, draft https on port 443; else they are left out
	Floor *Floor // what it closes is never drafted; nil closes everything
	Org   string // whose exemptions of the floor count
	// Beside is in force already: what it allows, for good and not only watching, needs no rule. Nil: nothing is.
	Beside *Snapshot
}

// Evidence is what a drafted rule rests on, or what was observed and got none.
type Evidence struct {
	Rule      string    `json:"rule,omitempty"` // id of the drafted rule; empty: LeftOut says why there is none
	LeftOut   string    `json:"left_out,omitempty"`
	Reason    Reason    `json:"reason,omitempty"` // of what the floor refuses
	Host      string    `json:"host,omitempty"`
	Address   string    `json:"address,omitempty"`
	Port      uint16    `json:"port,omitempty"`
	Protocol  string    `json:"protocol,omitempty"`
	Method    string    `json:"method,omitempty"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	Sandboxes int       `json:"sandboxes"` // how many different ones
	Times     int       `json:"times"`
	Denied    int       `json:"denied"` // how many of these were refused
	// AllPaths: more paths were seen than a rule may list, so the drafted one limits the method only.
	AllPaths bool `json:"all_paths,omitempty"`
}

// Why there is no rule for something observed. The list is closed.
const (
	LeftOutLimit      = "limit"       // more hosts than LearnOptions.Hosts, or more methods than anybody means
	LeftOutNameOnly   = "name_only"   // looked up, and not connected to
	LeftOutNoProtocol = "no_protocol" // connected to on a port that tells no protocol, and not further
	LeftOutDenied     = "denied"      // a rule denies it, which nobody does by oversight
	LeftOutPath       = "path"        // a path that no rule can name
	LeftOutRefused    = "refused"     // no rule can allow it: a public suffix, or what the floor closes, with its reason
	LeftOutOverflow   = "overflow"    // more was observed than is kept
)

const (
	learnHosts = 100
	learnPaths = 4 * MaxPaths // per method; with more, the paths are those of things, not of an API
	learnKept  = 20_000       // destinations that a Learner keeps
)

// A Learner drafts the narrowest rules that allow what was observed: each names one host or address, one port and one
// protocol. Where every request to it was seen inside, it also names methods and their paths. It never draws a conclusion to
// what was not seen: no wildcard, no range, no path pattern. It is a draft, for somebody to read: what sandboxes tried
// is no reason to let them.
type Learner struct {
	options  LearnOptions
	places   map[learnPlace]*learnt
	denied   map[learnPlace]*learnt // by a rule; never drafted
	closed   map[learnPlace]*learnt // by the floor; never drafted
	overflow learnt
}

type learnPlace struct {
	host     string
	addr     netip.Addr
	port     uint16 // 0: the name alone
	protocol Protocol
}

// learnt is what was seen of one place.
type learnt struct {
	first, last   time.Time
	times, denied int
	boxes         map[string]bool
	opaque        bool // some connection was not seen inside
	opened        bool // some was
	methods       map[string]*learntMethod
	others        *learnt // of more methods than a rule may list
	closed        Reason  // the floor's
}

type learntMethod struct {
	learnt
	paths map[string]bool
	more  bool // more than learnPaths
}

// NewLearner returns an empty one.
func NewLearner(o LearnOptions) *Learner {
	if o.Hosts <= 0 {
		o.Hosts = learnHosts
	}
	return &Learner{options: o, places: map[learnPlace]*learnt{}, denied: map[learnPlace]*learnt{}, closed: map[learnPlace]*learnt{}}
}

// Learn drafts from all observations at once.
func Learn(observed []Observation, o LearnOptions) (*Document, []Evidence) {
	l := NewLearner(o)
	for _, one := range observed {
		l.Add(one)
	}
	return l.Draft()
}

// Add takes one observation, allowed, denied, or let through by a policy that watches. What no policy decided tells nothing.
func (l *Learner) Add(o Observation) {
	if !o.judged() || l.known(&o) {
		return
	}
	place := placeOf(&o)
	if place.host == "" && !place.addr.IsValid() {
		return
	}
	in := l.places
	closed := l.closes(place)
	switch {
	case closed != "":
		in = l.closed
	case o.Reason == ReasonRuleDenied:
		in = l.denied
	}
	seen := in[place]
	if seen == nil {
		if len(in) >= learnKept {
			l.overflow.add(&o)
			return
		}
		seen = &learnt{closed: closed}
		in[place] = seen
	}
	seen.add(&o)
	if o.Request.Stage != StageRequest || o.Partial || o.Request.Path == "" || o.Request.Method == "" {
		seen.opaque = true
		return
	}
	seen.opened = true
	seen.request(&o)
}

// closes is the reason for which the floor closes a place; empty if it doesn't. A drafted rule names what it is for, so that an exemption
// is open to it.
func (l *Learner) closes(p learnPlace) Reason {
	if v := l.options.Floor.destination(l.options.Org, p.host, p.addr, p.port); !v.Allowed() {
		return v.Reason
	}
	return ""
}

// known reports whether nothing has to be learnt for the observation.
func (l *Learner) known(o *Observation) bool {
	if l.options.Beside == nil {
		return false
	}
	v, ok := o.again(func(r *Request) Verdict { return l.options.Floor.Evaluate(l.options.Org, l.options.Beside, r) })
	return ok && v.Allowed() && !v.Observed
}

func placeOf(o *Observation) learnPlace {
	r := &o.Request
	if r.Stage == StageName {
		return learnPlace{host: r.Host}
	}
	p := learnPlace{host: r.Host, port: r.Port, protocol: r.Protocol}
	if p.host == "" {
		p.addr = netaddr.Canonical(r.Addr)
	}
	if p.protocol == 0 { // refused before the first byte: what the port is for
		switch r.Port {
		case 443:
			p.protocol = HTTPS
		case 80:
			p.protocol = HTTP
		case 22:
			p.protocol = SSH
		case 5432:
			p.protocol = Postgres
		}
	}
	return p
}

func (s *learnt) add(o *Observation) {
	if s.boxes == nil {
		s.first, s.last, s.boxes = o.Time, o.Time, map[string]bool{}
	}
	if o.Time.Before(s.first) {
		s.first = o.Time
	}
	if o.Time.After(s.last) {
		s.last = o.Time
	}
	s.times += o.times()
	if !o.Allowed {
		s.denied += o.times()
	}
	s.boxes[o.Sandbox] = true
}

func (s *learnt) request(o *Observation) {
	if s.methods == nil {
		s.methods = map[string]*learntMethod{}
	}
	m := s.methods[o.Request.Method]
	if m == nil {
		if len(s.methods) >= MaxMethods {
			if s.others == nil {
				s.others = &learnt{}
			}
			s.others.add(o)
			return
		}
		m = &learntMethod{paths: map[string]bool{}}
		s.methods[o.Request.Method] = m
	}
	m.add(o)
	if m.paths[o.Request.Path] {
		return
	}
	if m.more = m.more || len(m.paths) >= learnPaths; !m.more {
		m.paths[o.Request.Path] = true
	}
}

// Draft returns a document in normal form, and what each of its rules rests on, followed by what was left out and why.
func (l *Learner) Draft() (*Document, []Evidence) {
	d := &learntDraft{ids: map[string]bool{}, document: &Document{Rules: []Rule{}}}
	within, connected := l.within(), map[string]bool{}
	for p := range l.places {
		connected[p.host] = connected[p.host] || p.port != 0
	}
	for _, p := range sortedPlaces(l.places) {
		seen := l.places[p]
		switch {
		case !within[p.destination()]:
			d.leave(p, seen, LeftOutLimit)
		case p.port == 0 && connected[p.host]:
			// Its connections tell more.
		case p.port == 0 && !l.options.Names:
			d.leave(p, seen, LeftOutNameOnly)
		case p.port == 0:
			p.port, p.protocol = 443, HTTPS
			d.place(p, seen)
		case p.protocol == 0:
			d.leave(p, seen, LeftOutNoProtocol)
		default:
			d.place(p, seen)
		}
	}
	for _, p := range sortedPlaces(l.denied) {
		d.leave(p, l.denied[p], LeftOutDenied)
	}
	for _, p := range sortedPlaces(l.closed) {
		d.leave(p, l.closed[p], LeftOutRefused)
	}
	if l.overflow.times > 0 {
		d.leave(learnPlace{}, &l.overflow, LeftOutOverflow)
	}
	normal, err := d.document.Normal()
	if err != nil {
		panic("policies: a learnt document: " + err.Error()) // each rule was checked by itself
	}
	return normal, append(d.evidence, d.left...)
}

func (p learnPlace) destination() learnPlace { return learnPlace{host: p.host, addr: p.addr} }

// within returns the destinations that are drafted: those of the most sandboxes, and then the most frequent.
func (l *Learner) within() map[learnPlace]bool {
	type weight struct {
		place learnPlace
		boxes map[string]bool
		times int
	}
	sum := map[learnPlace]*weight{}
	for p, seen := range l.places {
		w := sum[p.destination()]
		if w == nil {
			w = &weight{place: p.destination(), boxes: map[string]bool{}}
			sum[p.destination()] = w
		}
		w.times += seen.times
		for b := range seen.boxes {
			w.boxes[b] = true
		}
	}
	all := make([]*weight, 0, len(sum))
	for _, w := range sum {
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b *weight) int {
		return cmp.Or(cmp.Compare(len(b.boxes), len(a.boxes)), cmp.Compare(b.times, a.times), comparePlaces(a.place, b.place))
	})
	in := map[learnPlace]bool{}
	for _, w := range all[:min(len(all), l.options.Hosts)] {
		in[w.place] = true
	}
	return in
}

func sortedPlaces(of map[learnPlace]*learnt) []learnPlace {
	all := make([]learnPlace, 0, len(of))
	for p := range of {
		all = append(all, p)
	}
	slices.SortFunc(all, comparePlaces)
	return all
}

func comparePlaces(a, b learnPlace) int {
	return cmp.Or(cmp.Compare(a.host, b.host), a.addr.Compare(b.addr), cmp.Compare(a.port, b.port), cmp.Compare(a.protocol, b.protocol))
}

// learntDraft is a document that is being written.
type learntDraft struct {
	document       *Document
	ids            map[string]bool
	evidence, left []Evidence
}

func evidenceOf(p learnPlace, seen *learnt) Evidence {
	e := Evidence{
		Host: p.host, Port: p.port, Protocol: p.protocol.String(), FirstSeen: seen.first, LastSeen: seen.last,
		Sandboxes: len(seen.boxes), Times: seen.times, Denied: seen.denied, Reason: seen.closed,
	}
	if p.addr.IsValid() {
		e.Address = p.addr.String()
	}
	return e
}

func (d *learntDraft) leave(p learnPlace, seen *learnt, why string) {
	e := evidenceOf(p, seen)
	e.LeftOut = why
	d.left = append(d.left, e)
}

// place drafts the rules of one place: one, or if all of it was seen inside, some for each method.
func (d *learntDraft) place(p learnPlace, seen *learnt) {
	r := Rule{Action: Allow, Ports: []PortRange{Port(p.port)}, Protocols: p.protocol}
	if p.host != "" {
		r.Hosts = []string{p.host}
	} else {
		r.CIDRs = []netip.Prefix{netip.PrefixFrom(p.addr, p.addr.BitLen())}
	}
	if seen.opened && p.protocol == HTTPS {
		r.TLS = Inspect
	}
	if seen.opaque || !seen.opened {
		d.rule(p.id(""), r, evidenceOf(p, seen))
		return
	}
	for _, method := range sortedKeys(seen.methods) {
		d.method(p, r, method, seen.methods[method])
	}
	if seen.others != nil {
		d.leave(p, seen.others, LeftOutLimit)
	}
}

func (d *learntDraft) method(p learnPlace, r Rule, method string, m *learntMethod) {
	e := evidenceOf(p, &m.learnt)
	e.Method, e.AllPaths = method, m.more
	r.Methods = []string{method}
	if m.more {
		d.rule(p.id(method), r, e)
		return
	}
	var patterns []string
	for _, path := range sortedKeys(m.paths) {
		if pattern, ok := literalPath(path); ok {
			patterns = append(patterns, pattern)
		} else {
			left := e
			left.LeftOut = LeftOutPath
			d.left = append(d.left, left)
		}
	}
	for i, chunk := range slices.Collect(slices.Chunk(patterns, MaxPaths)) {
		one := r
		one.Paths = chunk
		id := p.id(method)
		if i > 0 {
			id = shortID(fmt.Sprintf("%s-%d", id, i+1))
		}
		d.rule(id, one, e)
	}
}

// rule enters a rule, unless the language refuses it.
func (d *learntDraft) rule(id string, r Rule, e Evidence) {
	for n := 2; d.ids[id]; n++ {
		id = shortID(fmt.Sprintf("%s-%d", id, n))
	}
	r.ID = id
	normal, err := (&Document{Rules: []Rule{r}}).Normal()
	if err != nil || len(d.document.Rules) >= MaxRules {
		e.LeftOut = LeftOutRefused
		if err == nil {
			e.LeftOut = LeftOutLimit
		}
		d.left = append(d.left, e)
		return
	}
	d.ids[id] = true
	d.document.Rules = append(d.document.Rules, normal.Rules[0])
	e.Rule = id
	d.evidence = append(d.evidence, e)
}

// id is the same whenever the same is learnt.
func (p learnPlace) id(method string) string {
	target := p.host
	if target == "" {
		target = strings.ReplaceAll(p.addr.String(), ":", "-")
	}
	id := fmt.Sprintf("learnt.%s.%d.%v", target, p.port, p.protocol)
	if method != "" {
		id += "." + strings.ToLower(method)
	}
	return shortID(id)
}

// shortID makes an id of a text that may be too long for one.
func shortID(id string) string {
	if len(id) <= 64 {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return id[:50] + "-" + hex.EncodeToString(sum[:6])
}

// literalPath is the pattern that matches this canonical path and no other.
func literalPath(path string) (string, bool) {
	pattern := strings.ReplaceAll(path, "*", "%2A")
	p, err := pathmatch.Compile(pattern)
	return pattern, err == nil && p.MatchAll(path)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
