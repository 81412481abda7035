package feed

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"portreeve.dev/policies"
)

// lastKnown is a document that allows a.test, and may go on for so long.
func lastKnown(stale string) json.RawMessage {
	return json.RawMessage(`{"failure_mode":"last_known","max_stale":"` + stale + `","rules":[{"id":"r","action":"allow","hosts":["a.test","free.test"],"ports":[443]}]}`)
}

// enduring is secretive, where org A's ceiling goes on for 5 minutes, its policy "short" for one and its policy "closed" not at all.
func enduring(revision uint64) State {
	s := secretive(revision)
	s.Orgs[0].Ceiling.Document = lastKnown("5m")
	s.Orgs[0].Policies = []Policy{{Name: "short", Document: lastKnown("1m")}, {Name: "closed", Document: allowing("a.test")}, {Name: "none"}}
	s.Sandboxes = append(s.Sandboxes, Sandbox{ID: "sbx_short", Org: orgA, Policy: "short"}, Sandbox{ID: "sbx_closed", Org: orgA, Policy: "closed"})
	return s
}

func TestLastKnownPolicyHasAnEnd(t *testing.T) {
	h, now := clocked()
	if err := h.Apply(enduring(4)); err != nil {
		t.Fatal(err)
	}
	begun := *now
	for _, step := range []struct {
		silence time.Duration
		want    map[string]error // by sandbox
		floor   bool
	}{
		{FreshFor, map[string]error{"sbx_a": nil, "sbx_short": nil, "sbx_closed": nil}, true},
		{FreshFor + 1, map[string]error{"sbx_a": nil, "sbx_short": nil, "sbx_closed": ErrStale}, true},
		{time.Minute, map[string]error{"sbx_a": nil, "sbx_short": nil, "sbx_closed": ErrStale}, true},
		{time.Minute + 1, map[string]error{"sbx_a": nil, "sbx_short": ErrStale, "sbx_closed": ErrStale}, true},
		{5 * time.Minute, map[string]error{"sbx_a": nil, "sbx_short": ErrStale, "sbx_closed": ErrStale}, true},
		{5*time.Minute + 1, map[string]error{"sbx_a": ErrStale, "sbx_short": ErrStale, "sbx_closed": ErrStale}, false},
	} {
		*now = begun + step.silence
		for sandbox, want := range step.want {
			if _, revision, err := h.Snapshot(bound(sandbox, orgA)); !errors.Is(err, want) || err == nil && revision != 4 {
				t.Errorf("silent for %v, %s: revision %d, %v, want %v", step.silence, sandbox, revision, err, want)
			}
		}
		// It is the policy of its own sandboxes only, and still judges.
		if _, _, err := h.Snapshot(bound("sbx_b", orgB)); step.silence > FreshFor && !errors.Is(err, ErrStale) {
			t.Errorf("silent for %v, another org: %v", step.silence, err)
		}
		if (h.Floor() != nil) != step.floor {
			t.Errorf("silent for %v: a floor: %v", step.silence, h.Floor() != nil)
		}
	}
	// A sandbox that was started under a newer policy can't run under this one.
	*now = begun + time.Minute
	b := bound("sbx_a", orgA)
	b.MinRevision = 5
	if _, _, err := h.Snapshot(b); !errors.Is(err, ErrRevision) {
		t.Errorf("started under a newer revision: %v", err)
	}
	// A heartbeat for a policy that did not come doesn't make it longer; one for this does.
	h.Heartbeat(4)
	*now += 5 * time.Minute
	if _, _, err := h.Snapshot(bound("sbx_a", orgA)); err != nil {
		t.Errorf("5 minutes after a heartbeat: %v", err)
	}
	h.Heartbeat(5)
	*now++
	if _, _, err := h.Snapshot(bound("sbx_a", orgA)); !errors.Is(err, ErrStale) {
		t.Errorf("after a heartbeat for another revision: %v", err)
	}
	if err := h.Apply(enduring(5)); err != nil {
		t.Fatal(err)
	}
	if v := verdict(t, h, bound("sbx_closed", orgA)); v.Action != policies.Allow {
		t.Errorf("once control is back: %v", v.Reason)
	}
}

func TestLastKnownPolicyHasNoSecrets(t *testing.T) {
	h, now := clocked()
	if err := h.Apply(enduring(1)); err != nil {
		t.Fatal(err)
	}
	b := bound("sbx_a", orgA)
	*now += FreshFor
	if got := sent(t, h, b, "a.test"); got != "Bearer "+valueA+"2" {
		t.Fatalf("just fresh: %q", got)
	}
	*now++
	if injector, _, err := h.Injector(b); !errors.Is(err, ErrStale) || injector != nil {
		t.Errorf("just stale: %v, %v", injector, err)
	}
	if verdict(t, h, b).Action != policies.Allow {
		t.Error("the last known policy doesn't hold")
	}
	// What was granted counts as granted, so that the proxy refuses it; the rest goes on.
	for host, want := range map[string]bool{"a.test": true, "shared.test": true, "free.test": false} {
		if got := h.Granted(b, host); got != want {
			t.Errorf("%s is granted: %v", host, got)
		}
	}
	*now += 5 * time.Minute
	if !h.Granted(b, "free.test") {
		t.Error("without any policy a host counts as free of secrets")
	}
}
