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

// TestBadSecretClosesItsGrants: a secret that can't be used is used nowhere, and nothing goes out in its place; every other
// one is as before.
func TestBadSecretClosesItsGrants(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*Secret)
		told  bool
	}{
		"a line end":         {func(s *Secret) { s.Value = append(s.Value, '\n') }, true},
		"nothing":            {func(s *Secret) { s.Value = nil }, false}, // control could not open it, and says so itself
		"too long":           {func(s *Secret) { s.Value = []byte(valueB + strings.Repeat("x", secrets.MaxValue)) }, true},
		"a byte of no field": {func(s *Secret) { s.Value[0] = 0xff }, true},
		"a broken grant":     {func(s *Secret) { s.Grants[0].Header = "Content-Length" }, true},
		"no place":           {func(s *Secret) { s.Grants[0].Place = "" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			h, _ := clocked()
			s := secretive(2)
			s.Orgs[1].Secrets = append(s.Orgs[1].Secrets, granted("sec_b2", valueB+"2", "b.test"))
			c.spoil(&s.Orgs[1].Secrets[0])
			closed, err := h.apply(s)
			if err != nil {
				t.Fatal(err)
			}
			if c.told != (len(closed) == 1) || c.told && (closed[0].Org != orgB || closed[0].Secret != "sec_b") {
				t.Errorf("closed: %+v", closed)
			}
			if text := fmt.Sprintf("%v %+v %#v", closed, closed, closed); strings.Contains(text, valueB[1:]) {
				t.Errorf("what is told holds a value: %s", text)
			}
			b := bound("sbx_b", orgB)
			injector, policy, err := h.Injector(b)
			if err != nil {
				t.Fatal(err)
			}
			r, _ := http.NewRequest("GET", "https://shared.test/", nil)
			if _, err := injector.Apply(secrets.Request{Host: "shared.test", Port: 443, Policy: policy, Path: "/"}, r); !errors.Is(err, secrets.ErrUnavailable) {
				t.Errorf("where it is granted: %v, want ErrUnavailable", err)
			}
			if got := sent(t, h, b, "b.test"); got != "Bearer "+valueB+"2" {
				t.Errorf("another one of the org: %q", got)
			}
			if got := sent(t, h, bound("sbx_a", orgA), "shared.test"); got != "Bearer "+valueA {
				t.Errorf("another org's: %q", got)
			}
		})
	}
	h, _ := clocked()
	if closed, err := h.apply(secretive(2)); err != nil || len(closed) > 0 {
		t.Fatalf("the twin that is good: %+v, %v", closed, err)
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
	var told json.RawMessage
	if err := control.Call(t.Context(), Policies, s, &told); err != nil || !strings.Contains(string(told), `"sec_a"`) || strings.Contains(string(told), valueA) {
		t.Errorf("told %s, %v", told, err)
	}
	// A form that can't be decoded at all.
	raw, _ := json.Marshal(secretive(1))
	if err := control.Call(t.Context(), Policies, json.RawMessage(strings.Replace(string(raw), `"version":1,"value"`, `"version":"x","value"`, 1)), nil); err == nil || strings.Contains(err.Error(), valueA) {
		t.Errorf("err = %v", err)
	}
	var ack Applied
	if err := control.Call(t.Context(), Policies, secretive(1), &ack); err != nil || ack.Revision != 1 || len(ack.Closed) > 0 {
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
}
