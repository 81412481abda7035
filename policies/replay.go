package policies

import (
	"cmp"
	"slices"
	"time"

	"portreeve.dev/policies/netaddr"
)

// An Observation is a recorded decision, back as a question.
type Observation struct {
	Time     time.Time
	Sandbox  string
	Decision string // its id
	Times    int    // how many equal ones it stands for; 0 is one
	Allowed  bool   // what became of it
	// Reason is why. A decision that neither a policy gave nor the floor about the address that was asked for (what the floor says of
	// the address that a name had, a budget, a peer that is gone) can't be judged again. Empty means that a policy gave it.
	Reason Reason
	// Request is what was judged. Its Now is the time to judge at: today's, to ask what a draft would do from now on. Zero: Time.
	Request Request
	// Partial: Request.Path is not the whole path that was judged, as paths are recorded in part or not at all.
	Partial bool
}

// times is how often it was observed.
func (o *Observation) times() int { return max(o.Times, 1) }

// judged reports whether what decided can be asked again.
func (o *Observation) judged() bool {
	switch o.Reason {
	case "", ReasonAllowed, ReasonNoRule, ReasonRuleDenied:
		return true
	case ReasonFloorHard, ReasonFloorSoft, ReasonPort25:
		return o.Request.Host == ""
	}
	return false
}

// again asks the observed question. It is false if there is no telling, as too little of it was kept.
func (o *Observation) again(evaluate func(*Request) Verdict) (Verdict, bool) {
	if !o.judged() {
		return Verdict{}, false
	}
	r := o.Request
	if r.Now.IsZero() {
		r.Now = o.Time
	}
	if r.Stage != StageRequest || r.Path != "" && !o.Partial {
		v := evaluate(&r)
		return v, v.Reason != ReasonParse && v.Reason != ReasonHostInvalid
	}
	r.Stage, r.Method, r.Path = StageConnect, "", ""
	v := evaluate(&r)
	return v, v.Reason != ReasonParse && v.Reason != ReasonHostInvalid && (!v.Allowed() || !v.Inside)
}

// A ReplayRow is what several observations of the same question have in common.
type ReplayRow struct {
	Request   ExplainedRequest `json:"request"`
	Verdict   Verdict          `json:"verdict"`  // the draft's
	Decision  string           `json:"decision"` // the newest of them
	Times     int              `json:"times"`
	Sandboxes int              `json:"sandboxes"` // how many different ones
	FirstSeen time.Time        `json:"first_seen"`
	LastSeen  time.Time        `json:"last_seen"`
}

// A ReplayResult is what a draft would do differently. Rows come with the most frequent first.
type ReplayResult struct {
	NewlyDenied   []ReplayRow `json:"newly_denied"`
	NewlyAllowed  []ReplayRow `json:"newly_allowed"`
	ClosedByFloor []ReplayRow `json:"closed_by_floor"` // the draft allows it in vain: the floor denies it, now and then
	Denied        int         `json:"denied"`          // observations that would be newly denied
	Allowed       int         `json:"allowed"`         // observations that would be newly allowed
	Same          int         `json:"same"`            // observations to which the answer is as before
	Closed        int         `json:"closed"`          // of Same, those that the draft allows and the floor denies
	Unjudged      int         `json:"unjudged"`        // observations that tell nothing: not a policy's, or recorded without what a rule needs
	Omitted       int         `json:"omitted"`         // of Denied, Allowed and Closed, those for which there is no row, as there were too many
}

// replayRows is how many rows a Replayer keeps if it isn't told.
const replayRows = 1000

// ReplayOptions say under what observations are judged again.
type ReplayOptions struct {
	Floor *Floor // nil closes everything
	Org   string // whose exemptions of the floor count
	Rows  int    // at most so many are kept; 0: a thousand
}

// A Replayer judges recorded decisions again, one after the other, and keeps only rows: the decisions may be as many as there are.
type Replayer struct {
	options ReplayOptions
	kept    map[replayKey]*replayRow
	result  ReplayResult
}

type replayKey struct {
	request Request
	kind    replayKind
	rule    string
}

// replayKind is what a row tells of.
type replayKind uint8

const (
	newlyDenied replayKind = iota
	newlyAllowed
	closedByFloor
)

type replayRow struct {
	ReplayRow
	boxes map[string]bool
}

// NewReplayer returns an empty one.
func NewReplayer(o ReplayOptions) *Replayer {
	o.Rows = cmp.Or(max(o.Rows, 0), replayRows)
	return &Replayer{options: o, kept: map[replayKey]*replayRow{}}
}

// Add judges one observation by the floor and the draft, compiled with the other layers of the observed sandbox.
func (p *Replayer) Add(draft *Snapshot, o Observation) {
	v, ok := o.again(func(r *Request) Verdict { return p.options.Floor.Evaluate(p.options.Org, draft, r) })
	var kind replayKind
	switch {
	case !ok:
		p.result.Unjudged += o.times()
		return
	case v.Allowed() == o.Allowed:
		p.result.Same += o.times()
		if !inVain(draft, &o, v) {
			return
		}
		p.result.Closed += o.times()
		kind = closedByFloor
	case v.Allowed():
		p.result.Allowed += o.times()
		kind = newlyAllowed
	default:
		p.result.Denied += o.times()
		kind = newlyDenied
	}
	p.row(kind, v, &o)
}

// inVain reports whether the draft allows what v, the floor's, denies.
func inVain(draft *Snapshot, o *Observation, v Verdict) bool {
	if v.Allowed() || v.Layer != FloorLayer {
		return false
	}
	alone, ok := o.again(draft.Evaluate)
	return ok && alone.Allowed()
}

// row counts an observation to its row.
func (p *Replayer) row(kind replayKind, v Verdict, o *Observation) {
	key := replayKey{request: o.Request, kind: kind, rule: v.Rule}
	key.request.Now, key.request.Addr = time.Time{}, netaddr.Canonical(o.Request.Addr)
	row := p.kept[key]
	if row == nil {
		if len(p.kept) >= p.options.Rows {
			p.result.Omitted += o.times()
			return
		}
		asked := o.Request
		asked.Now = time.Time{}
		row = &replayRow{ReplayRow{Request: explained(&asked), FirstSeen: o.Time, LastSeen: o.Time, Decision: o.Decision, Verdict: v}, map[string]bool{}}
		p.kept[key] = row
	}
	row.Times += o.times()
	row.boxes[o.Sandbox] = true
	if o.Time.Before(row.FirstSeen) {
		row.FirstSeen = o.Time
	}
	if o.Time.After(row.LastSeen) {
		row.LastSeen, row.Decision, row.Verdict = o.Time, o.Decision, v
	}
}

// Result is what came of everything added so far.
func (p *Replayer) Result() ReplayResult {
	res := p.result
	kinds := [...]*[]ReplayRow{newlyDenied: &res.NewlyDenied, newlyAllowed: &res.NewlyAllowed, closedByFloor: &res.ClosedByFloor}
	for _, rows := range kinds {
		*rows = []ReplayRow{}
	}
	for key, row := range p.kept {
		one := row.ReplayRow
		one.Sandboxes = len(row.boxes)
		*kinds[key.kind] = append(*kinds[key.kind], one)
	}
	for _, rows := range kinds {
		slices.SortFunc(*rows, byTimes)
	}
	return res
}

func byTimes(a, b ReplayRow) int {
	return cmp.Or(cmp.Compare(b.Times, a.Times), b.LastSeen.Compare(a.LastSeen), cmp.Compare(a.Request.Host, b.Request.Host),
		cmp.Compare(a.Request.Address, b.Request.Address), cmp.Compare(a.Request.Port, b.Request.Port), cmp.Compare(a.Request.Path, b.Request.Path),
		cmp.Compare(a.Request.Method, b.Request.Method), cmp.Compare(a.Request.Stage, b.Request.Stage), cmp.Compare(a.Decision, b.Decision))
}

// Replay judges all observations by one draft.
func Replay(draft *Snapshot, observed []Observation, o ReplayOptions) ReplayResult {
	p := NewReplayer(o)
	for _, o := range observed {
		p.Add(draft, o)
	}
	return p.Result()
}
