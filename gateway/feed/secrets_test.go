package feed

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/link"
	"portreeve.dev/policies"
	"portreeve.dev/secrets"
)

const (
	valueA = "value-of-org-a-8sk2"
	valueB = "value-of-org-b-7dm1"
)

func granted(id, value, host string) Secret {
	return Secret{ID: id, Version: 1, Value: []byte(value), Grants: []secrets.Grant{{Host: host, Port: 443, Place: secrets.PlaceHeader, Header: "Authorization", Template: "Bearer {value}"}}}
}

// secretive is state with a secret in each org: both for shared.test, and one for each org's own host.
func secretive(revision uint64) State {
	s := state(revision)
	s.Orgs[0].Secrets = []Secret{granted("sec_a", valueA, "shared.test"), granted("sec_a2", valueA+"2", "a.test")}
	s.Orgs[1].Secrets = []Secret{granted("sec_b", valueB, "shared.test")}
	return s
}

// sent is what a request of the sandbox's carries to the host.
func sent(t *testing.T, h *Holder, b egress.Binding, host string) string {
	t.Helper()
	injector, policy, err := h.Injector(b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest("GET", "https://"+host+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "the sandbox's own")
	if _, err := injector.Apply(secrets.Request{Host: host, Port: 443, Policy: policy, Path: "/"}, r); err != nil {
		t.Fatal(err)
	}
	return r.Header.Get("Authorization")
}

func TestSecretsAreOfOneOrg(t *testing.T) {
	h, now := clocked()
	if _, _, err := h.Injector(bound("sbx_a", orgA)); !errors.Is(err, ErrNoState) {
		t.Fatalf("before the first state: %v", err)
	}
	if err := h.Apply(secretive(1)); err != nil {
		t.Fatal(err)
	}
	a, none, b := bound("sbx_a", orgA), bound("sbx_none", orgA), bound("sbx_b", orgB)
	for _, c := range []struct {
		b          egress.Binding
		host, want string
	}{
		{a, "shared.test", "Bearer " + valueA}, {none, "shared.test", "Bearer " + valueA}, {b, "shared.test", "Bearer " + valueB},
		{a, "a.test", "Bearer " + valueA + "2"}, {b, "a.test", "the sandbox's own"}, {a, "other.test", "the sandbox's own"},
	} {
		if got := sent(t, h, c.b, c.host); got != c.want {
			t.Errorf("%s to %s: %q, want %q", c.b.Sandbox, c.host, got, c.want)
		}
	}
	if _, policy, _ := h.Injector(none); policy != "none" {
		t.Errorf("policy %q, want none", policy)
	}
	for _, other := range []egress.Binding{bound("sbx_a", orgB), bound("sbx_b", orgA), bound("sbx_gone", orgA)} {
		if got, _, err := h.Injector(other); !errors.Is(err, ErrUnknown) || got != nil {
			t.Errorf("%s of %s: %v, %v", other.Sandbox, other.Org, got, err)
		}
	}
	// A secret that is gone from the state is gone.
	s := secretive(2)
	s.Orgs[0].Secrets = nil
	if err := h.Apply(s); err != nil {
		t.Fatal(err)
	}
	if got := sent(t, h, a, "shared.test"); got != "the sandbox's own" {
		t.Errorf("after the secret was deleted: %q", got)
	}
	if got := sent(t, h, b, "shared.test"); got != "Bearer "+valueB {
		t.Errorf("the other org's, after that: %q", got)
	}
	*now += FreshFor + 1
	if _, _, err := h.Injector(b); !errors.Is(err, ErrStale) {
		t.Errorf("after silence: %v", err)
	}
}

func TestBadSecretRefusesTheState(t *testing.T) {
	h, _ := clocked()
	if err := h.Apply(secretive(1)); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Secret){
		"a line end":         func(s *Secret) { s.Value = append(s.Value, '\n') },
		"nothing":            func(s *Secret) { s.Value = nil },
		"too long":           func(s *Secret) { s.Value = []byte(valueB + strings.Repeat("x", secrets.MaxValue)) },
		"a byte of no field": func(s *Secret) { s.Value[0] = 0xff },
		"a broken grant":     func(s *Secret) { s.Grants[0].Header = "Content-Length" },
		"no place":           func(s *Secret) { s.Grants[0].Place = "" },
	} {
		t.Run(name, func(t *testing.T) {
			s := secretive(2)
			spoil(&s.Orgs[1].Secrets[0])
			err := h.Apply(s)
			if err == nil {
				t.Fatal("applied")
			}
			if text := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(text, valueB[1:]) || !strings.Contains(text, "sec_b") {
				t.Errorf("the error names no secret, or holds its value: %s", text)
			}
			if _, revision, err := h.Snapshot(bound("sbx_a", orgA)); err != nil || revision != 1 {
				t.Errorf("revision %d is in force (%v), want 1", revision, err)
			}
		})
	}
	if err := h.Apply(secretive(2)); err != nil {
		t.Fatalf("the twin that is good: %v", err)
	}
}

// TestRefusalOverTheLinkHoldsNoValue: what control logs of a refusal holds no value.
func TestRefusalOverTheLinkHoldsNoValue(t *testing.T) {
	h, _ := clocked()
	mux := link.NewMux()
	h.Register(mux)
	control := linked(t, mux)
	s := secretive(1)
	s.Orgs[0].Secrets[0].Value = []byte(valueA + "\n")
	if err := control.Call(t.Context(), Policies, s, nil); err == nil || strings.Contains(err.Error(), valueA) {
		t.Errorf("err = %v", err)
	}
	// A form that can't be decoded at all.
	raw, _ := json.Marshal(secretive(1))
	if err := control.Call(t.Context(), Policies, json.RawMessage(strings.Replace(string(raw), `"version":1,"value"`, `"version":"x","value"`, 1)), nil); err == nil || strings.Contains(err.Error(), valueA) {
		t.Errorf("err = %v", err)
	}
	var ack Applied
	if err := control.Call(t.Context(), Policies, secretive(1), &ack); err != nil || ack.Revision != 1 {
		t.Errorf("the twin: %+v, %v", ack, err)
	}
}

func TestOwnListOnlyNarrows(t *testing.T) {
	h, _ := clocked()
	s := state(1)
	s.Orgs[0].Ceiling.Document = json.RawMessage(`{"rules":[{"id":"a","action":"allow","hosts":["a.test","b.test"]},{"id":"c","action":"allow","hosts":["c.test"],"tls":"inspect"}]}`)
	own := json.RawMessage(`{"rules":[{"id":"mine","action":"allow","hosts":["a.test","evil.test","c.test"]}]}`)
	s.Sandboxes = append(s.Sandboxes, Sandbox{ID: "sbx_own", Org: orgA, Own: own}, Sandbox{ID: "sbx_nothing", Org: orgA, Own: json.RawMessage(`{"rules":[]}`)})
	if err := h.Apply(s); err != nil {
		t.Fatal(err)
	}
	for sandbox, allowed := range map[string]string{"sbx_a": "a.test b.test c.test", "sbx_own": "a.test c.test", "sbx_nothing": ""} {
		snapshot, _, err := h.Snapshot(bound(sandbox, orgA))
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"a.test", "b.test", "c.test", "evil.test"} {
			v := snapshot.Evaluate(&policies.Request{Stage: policies.StageConnect, Host: host, Port: 443, Protocol: policies.HTTPS, Now: time.Now()})
			if v.Allowed() != strings.Contains(allowed, host) {
				t.Errorf("%s to %s: %v", sandbox, host, v.Action)
			}
			if host == "c.test" && v.Allowed() && v.TLS != policies.Inspect {
				t.Errorf("%s: its own list lets %s through unopened", sandbox, host)
			}
		}
	}
	s.Revision, s.Sandboxes[0].Own = 2, json.RawMessage(`{"rulez":[]}`)
	if err := h.Apply(s); err == nil {
		t.Error("a list that can't be read was applied")
	}
}
