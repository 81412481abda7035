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
	// Reason is why. A decision that no policy gave (the floor, a budget, a peer that is gone) can't be judged again. Empty
	// means that a policy gave it.
	Reason Reason
	// Request is what was judged. Its Now is the time to judge at: today's, to ask what a draft would do from now on. Zero: Time.
	Request Request
	// Partial: Request.Path is not the whole path that was judged, as paths are recorded in part or not at all.
	Partial bool
}

// times is how often it was observed.
func (o *Observation) times() int { return max(o.Times, 1) }

// judged reports whether it was a policy that decided.
func (o *Observation) judged() bool {
	switch o.Reason {
	case "", ReasonAllowed, ReasonNoRule, ReasonRuleDenied:
		return true
	}
	return false
}

// again asks s the observed question. It is false if there is no telling, as too little of it was kept.
func (o *Observation) again(s *Snapshot) (Verdict, bool) {
	if !o.judged() {
		return Verdict{}, false
	}
	r := o.Request
	if r.Now.IsZero() {
		r.Now = o.Time
	}
	if r.Stage != StageRequest || r.Path != "" && !o.Partial {
		v := s.Evaluate(&r)
		return v, v.Reason != ReasonParse && v.Reason != ReasonHostInvalid
	}
	r.Stage, r.Method, r.Path = StageConnect, "", ""
	v := s.Evaluate(&r)
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
	NewlyDenied  []ReplayRow `json:"newly_denied"`
	NewlyAllowed []ReplayRow `json:"newly_allowed"`
	Denied       int         `json:"denied"`   // observations that would be newly denied
	Allowed      int         `json:"allowed"`  // observations that would be newly allowed
	Same         int         `json:"same"`     // observations to which the draft answers as before
	Unjudged     int         `json:"unjudged"` // observations that tell nothing: not a policy's, or recorded without what a rule needs
	Omitted      int         `json:"omitted"`  // of Denied and Allowed, those for which there is no row, as there were too many
}

// replayRows is how many rows a Replayer keeps if it isn't told.
const replayRows = 1000

// A Replayer judges recorded decisions again, one after the other, and keeps only rows: the decisions may be as many as there are.
type Replayer struct {
	rows   int
	kept   map[replayKey]*replayRow
	result ReplayResult
}

type replayKey struct {
	request Request
	allowed bool // newly
	rule    string
}

type replayRow struct {
	ReplayRow
	boxes map[string]bool
}

// NewReplayer keeps at most so many rows; 0: a thousand.
func NewReplayer(rows int) *Replayer {
	return &Replayer{rows: cmp.Or(max(rows, 0), replayRows), kept: map[replayKey]*replayRow{}}
}

// Add judges one observation by the draft, compiled with the other layers of the observed sandbox.
func (p *Replayer) Add(draft *Snapshot, o Observation) {
	v, ok := o.again(draft)
	switch {
	case !ok:
		p.result.Unjudged += o.times()
		return
	case v.Allowed() == o.Allowed:
		p.result.Same += o.times()
		return
	case v.Allowed():
		p.result.Allowed += o.times()
	default:
		p.result.Denied += o.times()
	}
	key := replayKey{request: o.Request, allowed: v.Allowed(), rule: v.Rule}
	key.request.Now, key.request.Addr = time.Time{}, netaddr.Canonical(o.Request.Addr)
	row := p.kept[key]
	if row == nil {
		if len(p.kept) >= p.rows {
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
	res.NewlyDenied, res.NewlyAllowed = []ReplayRow{}, []ReplayRow{}
	for key, row := range p.kept {
		one := row.ReplayRow
		one.Sandboxes = len(row.boxes)
		if key.allowed {
			res.NewlyAllowed = append(res.NewlyAllowed, one)
		} else {
			res.NewlyDenied = append(res.NewlyDenied, one)
		}
	}
	slices.SortFunc(res.NewlyDenied, byTimes)
	slices.SortFunc(res.NewlyAllowed, byTimes)
	return res
}

func byTimes(a, b ReplayRow) int {
	return cmp.Or(cmp.Compare(b.Times, a.Times), b.LastSeen.Compare(a.LastSeen), cmp.Compare(a.Request.Host, b.Request.Host),
		cmp.Compare(a.Request.Address, b.Request.Address), cmp.Compare(a.Request.Port, b.Request.Port), cmp.Compare(a.Request.Path, b.Request.Path),
		cmp.Compare(a.Request.Method, b.Request.Method), cmp.Compare(a.Request.Stage, b.Request.Stage), cmp.Compare(a.Decision, b.Decision))
}

// Replay judges all observations by one draft.
func Replay(draft *Snapshot, observed []Observation) ReplayResult {
	p := NewReplayer(0)
	for _, o := range observed {
		p.Add(draft, o)
	}
	return p.Result()
}
