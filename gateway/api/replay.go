package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

// rowsMost is how many rows an answer has.
const rowsMost = 500

type replayIn struct {
	Body struct {
		Period
		Policy   string          `json:"policy,omitempty" maxLength:"63" doc:"The named policy that the draft would become; one that isn't there yet is tried on every sandbox. Without: the draft would become the ceiling."`
		Document json.RawMessage `json:"document,omitempty" doc:"The draft: an object, or a string of JSON or YAML."`
		Version  int64           `json:"version,omitempty" minimum:"1" doc:"An older version in place of a draft."`
	}
}

type replayOut struct {
	Body struct {
		Look
		NewlyDenied   []replayRow `json:"newly_denied" nullable:"false" doc:"What was allowed and would be denied, the most frequent first."`
		NewlyAllowed  []replayRow `json:"newly_allowed" nullable:"false" doc:"What was denied and would be allowed."`
		ClosedByFloor []replayRow `json:"closed_by_floor" nullable:"false" doc:"What the draft would allow and the floor denies, now and then."`
		Denied        int         `json:"newly_denied_count"`
		Allowed       int         `json:"newly_allowed_count"`
		Closed        int         `json:"closed_by_floor_count" doc:"Counted in same too."`
		Same          int         `json:"same"`
		Unjudged      int         `json:"unjudged" doc:"Decisions that neither a policy gave nor the floor about the address that was asked for, or of which too little was kept to judge them again."`
		Elsewhere     int         `json:"elsewhere" doc:"Decisions about sandboxes that the draft does not concern."`
		Omitted       int         `json:"omitted" doc:"Of the three counts, those for which there is no row."`
		OnAll         bool        `json:"tried_on_all" doc:"No sandbox has the policy yet, so it was tried on all of them."`
	}
}

// A replayRow is what several decisions about the same have in common.
type replayRow struct {
	Stage     string    `json:"stage" enum:"name,connect,request"`
	Host      string    `json:"host,omitempty"`
	Address   string    `json:"address,omitempty"`
	Port      uint16    `json:"port,omitempty"`
	Protocol  string    `json:"protocol,omitempty"`
	Method    string    `json:"method,omitempty"`
	Path      string    `json:"path,omitempty"`
	Times     int       `json:"times"`
	Sandboxes int       `json:"sandboxes" doc:"How many different ones."`
	Decision  string    `json:"decision_id" doc:"The newest of them."`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
	Reason    string    `json:"reason" doc:"Why it is decided so with the draft."`
	Rule      string    `json:"rule,omitempty"`
	Layer     string    `json:"layer,omitempty"`
}

func (s *Server) replayRoutes() {
	route(s, sso.ScopeRead, huma.Operation{OperationID: "replay-policy", Method: http.MethodPost, Path: "/policies/replay", Summary: "What would a draft have decided otherwise?",
		Description: "Judges recorded decisions again, by the edge's own evaluator: each under the floor and what its sandbox has, with the draft in its place. Nothing is stored.", Tags: []string{"policies"}}, s.replayDraft)
}

func (s *Server) replayDraft(ctx context.Context, c *caller, in *replayIn) (*replayOut, error) {
	name, err := draftName(in.Body.Policy)
	if err != nil {
		return nil, err
	}
	draft, err := s.draftOf(ctx, c, name, in.Body.Document, in.Body.Version)
	if err != nil {
		return nil, err
	}
	bench, err := s.bench(ctx, c, name, draft)
	if err != nil {
		return nil, err
	}
	bench.onAll = bench.onAll || in.Body.Sandbox != "" // which is asked for by name
	out := &replayOut{}
	now := s.Now()
	floor, err := s.FloorNow(ctx)
	if err != nil {
		return nil, err
	}
	replayer := policies.NewReplayer(policies.ReplayOptions{Floor: floor, Org: c.org(), Rows: rowsMost})
	out.Body.Look, err = s.overDecisions(ctx, c, in.Body.Period, func(d store.Decision) error {
		snapshot, err := bench.of(ctx, d.Sandbox)
		if err != nil {
			return err
		}
		if snapshot == nil {
			out.Body.Elsewhere++
			return nil
		}
		replayer.Add(snapshot, observation(d, now))
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := replayer.Result()
	out.Body.NewlyDenied, out.Body.NewlyAllowed, out.Body.ClosedByFloor = viewRows(r.NewlyDenied), viewRows(r.NewlyAllowed), viewRows(r.ClosedByFloor)
	out.Body.Denied, out.Body.Allowed, out.Body.Closed, out.Body.Same, out.Body.Unjudged, out.Body.Omitted = r.Denied, r.Allowed, r.Closed, r.Same, r.Unjudged, r.Omitted
	out.Body.OnAll = bench.onAll && in.Body.Sandbox == ""
	return out, nil
}

func viewRows(rows []policies.ReplayRow) []replayRow {
	all := []replayRow{}
	for _, r := range rows {
		q, v := r.Request, r.Verdict
		all = append(all, replayRow{q.Stage.String(), q.Host, q.Address, q.Port, q.Protocol, q.Method, q.Path, r.Times, r.Sandboxes, r.Decision, r.FirstSeen, r.LastSeen,
			string(v.Reason), v.Rule, v.Layer})
	}
	return all
}

// draftOf is the document in question: one that was sent, or an older version.
func (s *Server) draftOf(ctx context.Context, c *caller, name string, document json.RawMessage, version int64) (store.Policy, error) {
	switch {
	case document != nil && version != 0:
		return store.Policy{}, invalid("body.version", "give a version or a document, not both")
	case version != 0:
		return s.versionOf(ctx, c, name, version)
	case document == nil:
		return store.Policy{}, invalid("body.document", "is missing; give a document or a version")
	}
	d, err := s.readInside("document", document)
	return store.Policy{Name: name, Document: d.normal}, err
}

// A bench holds, for each sandbox, what it would be judged by with a draft in force.
type bench struct {
	s     *Server
	c     *caller
	name  string
	draft store.Policy
	onAll bool // the draft is for every sandbox, whatever policy it has

	ready map[string]*policies.Snapshot // by the sandbox
	same  map[string]*policies.Snapshot // by the policy and the own list, which many sandboxes share
	left  int                           // rules that may still be compiled
}

func (s *Server) bench(ctx context.Context, c *caller, name string, draft store.Policy) (*bench, error) {
	b := &bench{s: s, c: c, name: name, draft: draft, ready: map[string]*policies.Snapshot{}, same: map[string]*policies.Snapshot{}, left: compiledMost}
	if name == store.Ceiling {
		return b, nil
	}
	_, err := s.Store.Policy(ctx, c.org(), name)
	if errors.Is(err, store.ErrNotFound) {
		b.onAll, err = true, nil
	}
	return b, err
}

// of returns the snapshot of a sandbox; nil if the draft does not concern it, errEnough if that is too much to compile.
func (b *bench) of(ctx context.Context, sandbox string) (*policies.Snapshot, error) {
	if s, ok := b.ready[sandbox]; ok {
		return s, nil
	}
	l, there, err := b.layers(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	var s *policies.Snapshot
	if there {
		if s, err = b.compile(l); err != nil {
			return nil, err
		}
	}
	b.ready[sandbox] = s
	return s, nil
}

// layers is what a sandbox has, with the draft in its place; false if the draft does not concern it.
func (b *bench) layers(ctx context.Context, sandbox string) (layers, bool, error) {
	l, err := b.s.layersOf(ctx, b.c, sandbox, "")
	if p, ok := errors.AsType[*Problem](err); ok && p.Status == http.StatusNotFound {
		return l, false, nil // it, or its policy, is gone
	}
	if err != nil {
		return l, false, err
	}
	switch {
	case b.name == store.Ceiling:
		l.ceiling = b.draft
	case b.onAll, l.named != nil && l.named.Name == b.name:
		l.named = &b.draft
	default:
		return l, false, nil
	}
	return l, true, nil
}

// compile compiles the layers, those of many sandboxes once.
func (b *bench) compile(l layers) (*policies.Snapshot, error) { return compileOnce(l, b.same, &b.left) }

// compileOnce compiles layers unless the same ones are in ready. It takes the number of rules off left, and fails with errEnough
// when that is used up.
func compileOnce(l layers, ready map[string]*policies.Snapshot, left *int) (*policies.Snapshot, error) {
	key := ""
	if l.named != nil {
		key = l.named.Name
	}
	if l.own != nil {
		key += "\x00" + string(l.own.Document)
	}
	if s := ready[key]; s != nil {
		return s, nil
	}
	for _, p := range l.all() {
		*left -= 1 + bytes.Count(p.Document, []byte(`"action"`)) // as good as its rules
	}
	if *left < 0 {
		return nil, errEnough
	}
	s, err := l.compile()
	ready[key] = s
	return s, err
}
