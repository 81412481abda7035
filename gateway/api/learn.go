package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"go.yaml.in/yaml/v3"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
	"portreeve.dev/sso"
)

type learnIn struct {
	FormIn
	Body struct {
		Period
		Policy string `json:"policy,omitempty" maxLength:"63" doc:"Only decisions of sandboxes that have this policy now."`
		Hosts  int    `json:"hosts,omitempty" default:"100" minimum:"1" maximum:"1000" doc:"At most so many names and addresses, those of the most sandboxes first."`
		Names  bool   `json:"names,omitempty" doc:"Draft https also for names that were only looked up."`
		New    bool   `json:"only_new,omitempty" doc:"Leave out what the sandboxes' policies allow already: the draft is what to add."`
	}
}

type learnt struct {
	Look
	Document json.RawMessage     `json:"document" doc:"A draft for somebody to read: it names what was seen, and nothing else."`
	Evidence []policies.Evidence `json:"evidence" nullable:"false" doc:"What each rule rests on, and what was left out and why."`
}

type learnOut struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

func (s *Server) learnRoutes() {
	op := huma.Operation{OperationID: "learn-policy", Method: http.MethodPost, Path: "/policies/learn", Summary: "Draft the narrowest rules for what was observed",
		Description: "As JSON with its evidence, or with Accept: application/yaml as a document whose comments say what each rule rests on. What sandboxes tried is no reason to let them: read it before it becomes a policy.",
		Tags:        []string{"policies"}}
	op.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
		"application/json": shape[learnt](s, "Learnt"), "application/yaml": {Schema: &huma.Schema{Type: "string"}}}}}
	route(s, sso.ScopeRead, op, s.learn)
}

func (s *Server) learn(ctx context.Context, c *caller, in *learnIn) (*learnOut, error) {
	policy, err := draftName(in.Body.Policy)
	if err != nil {
		return nil, err
	}
	if in.Body.Policy != "" {
		if _, err := s.layersOf(ctx, c, "", policy); err != nil {
			return nil, err
		}
	}
	boxes := &jury{s: s, c: c, boxes: map[string]*judged{}, same: map[string]*policies.Snapshot{}, left: compiledMost}
	now := s.Now()
	floor, err := s.FloorNow(ctx)
	if err != nil {
		return nil, err
	}
	learner := policies.NewLearner(policies.LearnOptions{Floor: floor, Org: c.org(), Hosts: in.Body.Hosts, Names: in.Body.Names})
	var l learnt
	l.Look, err = s.overDecisions(ctx, c, in.Body.Period, func(d store.Decision) error {
		box, err := boxes.of(ctx, d.Sandbox)
		if err != nil || in.Body.Policy != "" && (!box.there || box.policy != policy) {
			return err
		}
		o := observation(d, now)
		if in.Body.New && box.there && box.knows(floor, c.org(), o) {
			return nil
		}
		learner.Add(o)
		return nil
	})
	if err != nil {
		return nil, err
	}
	document, evidence := learner.Draft()
	if l.Document, err = json.Marshal(document); err != nil {
		return nil, err
	}
	if l.Evidence = evidence; evidence == nil {
		l.Evidence = []policies.Evidence{}
	}
	out := &learnOut{ContentType: "application/json"}
	if in.yaml() {
		out.ContentType = "application/yaml"
		out.Body, err = l.yaml()
		return out, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err = e.Encode(l)
	out.Body = b.Bytes()
	return out, err
}

// judged is what a sandbox has now.
type judged struct {
	there    bool
	policy   string
	snapshot *policies.Snapshot
}

// A jury knows what each sandbox has.
type jury struct {
	s     *Server
	c     *caller
	boxes map[string]*judged
	same  map[string]*policies.Snapshot
	left  int
}

func (y *jury) of(ctx context.Context, sandbox string) (*judged, error) {
	if j, ok := y.boxes[sandbox]; ok {
		return j, nil
	}
	j := &judged{}
	l, err := y.s.layersOf(ctx, y.c, sandbox, "")
	if p, ok := errors.AsType[*Problem](err); ok && p.Status == http.StatusNotFound {
		y.boxes[sandbox] = j // it, or its policy, is gone
		return j, nil
	}
	if err != nil {
		return nil, err
	}
	if j.there = true; l.named != nil {
		j.policy = l.named.Name
	}
	if j.snapshot, err = compileOnce(l, y.same, &y.left); err != nil {
		return nil, err
	}
	y.boxes[sandbox] = j
	return j, nil
}

// knows reports whether the floor and the sandbox's policy allow it already, and not only while it watches.
func (j *judged) knows(floor *policies.Floor, org string, o policies.Observation) bool {
	v := floor.Evaluate(org, j.snapshot, &o.Request)
	return v.Allowed() && !v.Observed
}

// yaml writes the draft with its evidence as comments.
func (l *learnt) yaml() ([]byte, error) {
	text, err := toYAML(l.Document)
	if err != nil {
		return nil, err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil {
		return nil, fmt.Errorf("writing YAML: %w", err)
	}
	by := map[string]policies.Evidence{}
	var left []string
	for _, e := range l.Evidence {
		if e.Rule != "" {
			by[e.Rule] = e
		} else {
			left = append(left, leftOut(e))
		}
	}
	if rules := valueOf(n.Content[0], "rules"); rules != nil {
		for _, rule := range rules.Content {
			if id := valueOf(rule, "id"); id != nil {
				if e, ok := by[id.Value]; ok {
					rule.HeadComment = seen(e)
				}
			}
		}
	}
	head := fmt.Sprintf("A draft, learnt from %d decisions since %s. Read it before it becomes a policy:\nwhat sandboxes tried is no reason to let them.", l.Looked, l.Since.Format(time.RFC3339))
	if l.More {
		head += "\nThere were more decisions than were looked at."
	}
	if len(left) > 0 {
		head += "\n\nLeft out:\n" + strings.Join(left, "\n")
	}
	n.HeadComment = head
	return writeYAML(&n)
}

// valueOf is the value of a field of an object; nil if it has none.
func valueOf(object *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(object.Content); i += 2 {
		if object.Content[i].Value == name {
			return object.Content[i+1]
		}
	}
	return nil
}

func seen(e policies.Evidence) string {
	text := fmt.Sprintf("%s by %s, first %s, last %s", count(e.Times, "time", "times"), count(e.Sandboxes, "sandbox", "sandboxes"), e.FirstSeen.UTC().Format(time.RFC3339), e.LastSeen.UTC().Format(time.RFC3339))
	if e.Denied > 0 {
		text += "; refused " + count(e.Denied, "time", "times")
	}
	if e.AllPaths {
		text += "; more paths than a rule may list, so all of them"
	}
	return text
}

func leftOut(e policies.Evidence) string {
	target := e.Host
	if target == "" {
		target = e.Address
	}
	if target == "" {
		target = "more destinations than are kept"
	}
	if e.Port != 0 {
		target += fmt.Sprintf(" port %d", e.Port)
	}
	if e.Method != "" {
		target += " " + e.Method
	}
	why := e.LeftOut
	if e.Reason != "" {
		why += ", " + e.Reason.String()
	}
	return fmt.Sprintf("  %s (%s): %s", target, why, seen(e))
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
