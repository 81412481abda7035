package feed

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/link"
	"portreeve.dev/policies"
)

const (
	orgA = "org_a"
	orgB = "org_b"
)

func allowing(host string) json.RawMessage {
	return json.RawMessage(`{"rules":[{"id":"r","action":"allow","hosts":["` + host + `"],"ports":[443]}]}`)
}

// state is two orgs, each with a sandbox of its own; only A allows a.test.
func state(revision uint64) State {
	return State{Revision: revision,
		Orgs: []Org{
			{ID: orgA, Ceiling: Policy{Version: 3, Document: allowing("a.test")}, Policies: []Policy{{Name: "none", Version: 1}}},
			{ID: orgB},
		},
		Sandboxes: []Sandbox{{ID: "sbx_a", Org: orgA}, {ID: "sbx_none", Org: orgA, Policy: "none"}, {ID: "sbx_b", Org: orgB}},
	}
}

func bound(sandbox, org string) egress.Binding {
	return egress.Binding{Sandbox: sandbox, Org: org, Addr: netip.MustParseAddr("10.200.0.1")}
}

// clocked is a holder whose boot clock the test moves.
func clocked() (*Holder, *time.Duration) {
	h := NewHolder(policies.FloorConfig{}, nil, nil)
	now := time.Hour
	h.clock = func() time.Duration { return now }
	return h, &now
}

func verdict(t *testing.T, h *Holder, b egress.Binding) policies.Verdict {
	t.Helper()
	s, _, err := h.Snapshot(b)
	if err != nil {
		t.Fatal(err)
	}
	return s.Evaluate(&policies.Request{Stage: policies.StageConnect, Host: "a.test", Port: 443, Now: time.Now()})
}

func TestEachSandboxHasItsPolicy(t *testing.T) {
	h, _ := clocked()
	if err := h.Apply(state(1)); err != nil {
		t.Fatal(err)
	}
	for b, want := range map[egress.Binding]policies.Action{
		bound("sbx_a", orgA): policies.Allow, bound("sbx_none", orgA): policies.Deny, bound("sbx_b", orgB): policies.Deny,
	} {
		if got := verdict(t, h, b); got.Action != want {
			t.Errorf("%s: got %v (%v), want %v", b.Sandbox, got.Action, got.Reason, want)
		}
	}
}

func TestSandboxOfAnotherOrgHasNoSnapshot(t *testing.T) {
	h, _ := clocked()
	if err := h.Apply(state(1)); err != nil {
		t.Fatal(err)
	}
	for _, b := range []egress.Binding{bound("sbx_a", orgB), bound("sbx_gone", orgA)} {
		if _, _, err := h.Snapshot(b); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s of %s: got %v, want ErrUnknown", b.Sandbox, b.Org, err)
		}
	}
}

func TestSilenceMakesTheSnapshotStale(t *testing.T) {
	h, now := clocked()
	if _, _, err := h.Snapshot(bound("sbx_a", orgA)); !errors.Is(err, ErrNoState) {
		t.Fatalf("before the first state: got %v, want ErrNoState", err)
	}
	if err := h.Apply(state(1)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name  string
		after time.Duration
		beat  uint64 // 0: none
		want  error
	}{
		{"just fresh", FreshFor, 0, nil},
		{"just stale", 1, 0, ErrStale},
		{"alive again", 0, 1, nil},
		{"a heartbeat that names a newer revision", FreshFor + 1, 2, ErrStale},
		{"a late heartbeat for the old one", 0, 1, ErrStale},
	} {
		*now += step.after
		if step.beat > 0 {
			h.Heartbeat(step.beat)
		}
		if _, _, err := h.Snapshot(bound("sbx_a", orgA)); !errors.Is(err, step.want) {
			t.Fatalf("%s: got %v, want %v", step.name, err, step.want)
		}
		if floor := h.Floor(); (floor == nil) != (step.want != nil) {
			t.Fatalf("%s: floor is nil = %v", step.name, floor == nil)
		}
	}
}

func TestOlderRevisionIsRefused(t *testing.T) {
	h, _ := clocked()
	if err := h.Apply(state(4)); err != nil {
		t.Fatal(err)
	}
	b := bound("sbx_a", orgA)
	b.MinRevision = 5
	if _, _, err := h.Snapshot(b); !errors.Is(err, ErrRevision) {
		t.Fatalf("got %v, want ErrRevision", err)
	}
	b.MinRevision = 4
	if _, _, err := h.Snapshot(b); err != nil {
		t.Fatalf("the twin at its revision: %v", err)
	}
	if err := h.Apply(state(3)); err == nil {
		t.Fatal("an older state replaced a newer one")
	}
}

// TestUnusablePartIsClosed: what can't be used of one org is closed, and what is another's is as it says.
func TestUnusablePartIsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(*State)
		denied []string // of those that are allowed otherwise: sbx_a, sbx_a2, sbx_c
		about  Closed
	}{
		"nothing":                         {func(*State) {}, nil, Closed{}},
		"a ceiling with an unknown field": {func(s *State) { s.Orgs[0].Ceiling.Document = json.RawMessage(`{"rulez":[]}`) }, []string{"sbx_a", "sbx_a2"}, Closed{Org: orgA}},
		"a policy with an unknown field":  {func(s *State) { s.Orgs[0].Policies[1].Document = json.RawMessage(`{"rulez":[]}`) }, []string{"sbx_a2"}, Closed{Org: orgA}},
		"a list of its own with one":      {func(s *State) { s.Sandboxes[0].Own = json.RawMessage(`{"rulez":[]}`) }, []string{"sbx_a"}, Closed{Org: orgA, Sandbox: "sbx_a"}},
		"a policy that is missing":        {func(s *State) { s.Sandboxes[0].Policy = "gone" }, []string{"sbx_a"}, Closed{Org: orgA, Sandbox: "sbx_a"}},
		"an org that is missing":          {func(s *State) { s.Orgs = s.Orgs[1:] }, []string{"sbx_a", "sbx_a2"}, Closed{Org: orgA, Sandbox: "sbx_a"}},
		"an exemption of the hard floor":  {func(s *State) { s.Exempt = []Exemption{{CIDR: "127.0.0.0/8"}} }, nil, Closed{}},
		"an exemption of no address":      {func(s *State) { s.Exempt = []Exemption{{CIDR: "x"}} }, nil, Closed{}},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := clocked()
			s := state(2)
			s.Orgs[0].Policies = append(s.Orgs[0].Policies, Policy{Name: "web", Version: 1, Document: allowing("a.test")})
			s.Orgs = append(s.Orgs, Org{ID: "org_c", Ceiling: Policy{Version: 1, Document: allowing("a.test")}})
			s.Sandboxes = append(s.Sandboxes, Sandbox{ID: "sbx_a2", Org: orgA, Policy: "web"}, Sandbox{ID: "sbx_c", Org: "org_c"})
			c.spoil(&s)
			closed, err := h.apply(s)
			if err != nil {
				t.Fatal(err)
			}
			if (len(closed) > 0) != (name != "nothing") {
				t.Errorf("closed: %+v", closed)
			}
			if len(closed) > 0 && (closed[0].Org != c.about.Org || closed[0].Sandbox != c.about.Sandbox || closed[0].Reason == "") {
				t.Errorf("closed: %+v, want %+v", closed[0], c.about)
			}
			for sandbox, org := range map[string]string{"sbx_a": orgA, "sbx_a2": orgA, "sbx_c": "org_c"} {
				snapshot, revision, err := h.Snapshot(bound(sandbox, org))
				allowed := err == nil && snapshot.Evaluate(&policies.Request{Stage: policies.StageConnect, Host: "a.test", Port: 443, Now: time.Now()}).Allowed()
				if allowed == slices.Contains(c.denied, sandbox) || revision != 2 {
					t.Errorf("%s is allowed: %v (revision %d, %v)", sandbox, allowed, revision, err)
				}
			}
			floor := h.Floor()
			if v := floor.Judge(orgA, netip.MustParseAddr("127.0.0.1"), 443); v.Allowed() {
				t.Error("the hard floor is open")
			}
		})
	}
}

// TestClosedPartIsLoggedOnce: control's log names what an edge can't use, for as long as it can't.
func TestClosedPartIsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	p := &Publisher{Log: slog.New(slog.NewTextHandler(&log, nil)), Method: Policies}
	one := Closed{Org: orgA, Secret: "sec_1", Reason: "the value is empty"}
	for i, step := range []struct {
		closed []Closed
		lines  int // in all
	}{{nil, 0}, {[]Closed{one}, 1}, {[]Closed{one}, 1}, {[]Closed{one, {Org: orgB, Reason: "x"}}, 2}, {nil, 2}, {[]Closed{one}, 3}} {
		p.tell(step.closed)
		if n := strings.Count(log.String(), "can't be used"); n != step.lines {
			t.Errorf("step %d: %d lines, want %d", i, n, step.lines)
		}
	}
	if !strings.Contains(log.String(), "secret=sec_1") || !strings.Contains(log.String(), "org="+orgA) {
		t.Errorf("%s", log.String())
	}
}

func TestPublisherFeedsEachNewLink(t *testing.T) {
	revision := make(chan uint64, 1)
	revision <- 1
	p := &Publisher{Peer: new(link.Peer), Method: Policies, Log: slog.New(slog.DiscardHandler), Load: func(context.Context) (any, uint64, error) {
		r := <-revision
		revision <- r
		return state(r), r, nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	defer func() { cancel(); <-ended }()

	first := edge(t, p)
	waitRevision(t, p, first, 1)
	<-revision
	revision <- 2
	p.Publish()
	waitRevision(t, p, first, 2)
	second := edge(t, p) // an edge that was started anew
	<-revision
	revision <- 3
	p.Publish()
	waitRevision(t, p, second, 3)
}

// edge links a new holder to p.
func edge(t *testing.T, p *Publisher) *Holder {
	t.Helper()
	h := NewHolder(policies.FloorConfig{}, nil, nil)
	mux := link.NewMux()
	h.Register(mux)
	p.Peer.Set(linked(t, mux))
	return h
}

func waitRevision(t *testing.T, p *Publisher, h *Holder, revision uint64) {
	t.Helper()
	if err := p.WaitApplied(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	if _, got, err := h.Snapshot(bound("sbx_a", orgA)); err != nil || got != revision {
		t.Fatalf("the edge runs under %d (%v), want %d", got, err, revision)
	}
}

// TestExemptionEndsByTheClock: an edge closes on time what an exemption opened, also where no newer state comes.
func TestExemptionEndsByTheClock(t *testing.T) {
	h, _ := clocked()
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	h.wall = func() time.Time { return now }
	s := state(1)
	s.Exempt = []Exemption{{CIDR: "10.1.0.0/16", Orgs: []string{orgA}, ExpiresAt: now.Add(time.Minute)}, {CIDR: "10.2.0.0/16", Orgs: []string{orgA}}}
	// It travels as it is.
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var arrived State
	if err := json.Unmarshal(text, &arrived); err != nil {
		t.Fatal(err)
	}
	if err := h.Apply(arrived); err != nil {
		t.Fatal(err)
	}
	for _, after := range []time.Duration{0, time.Minute - time.Microsecond, time.Microsecond, time.Hour} {
		now = now.Add(after)
		for addr, want := range map[string]bool{"10.1.0.1": now.Before(s.Exempt[0].ExpiresAt), "10.2.0.1": true} {
			if got := h.Floor().Judge(orgA, netip.MustParseAddr(addr), 443).Allowed(); got != want {
				t.Errorf("%s at %v: open %v, want %v", addr, now, got, want)
			}
		}
	}
}
