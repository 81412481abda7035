package inbound

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

func TestZeroPolicyRefuses(t *testing.T) {
	for _, public := range []bool{false, true} {
		if v := (Policy{}).Evaluate(Request{Public: public, Port: 3000, Lifetime: time.Second}); v.Allowed() {
			t.Errorf("public %v: %+v", public, v)
		}
	}
	if (Verdict{}).Allowed() {
		t.Error("the zero Verdict allows")
	}
	if field, _ := Default().Check(); field != "" {
		t.Errorf("the default is wrong in %s", field)
	}
}

func TestEvaluate(t *testing.T) {
	narrow := Policy{Modes: []Mode{Token}, Ports: []Ports{"3000", "8000-8099"}, MaxExpiresIn: 60}
	open := Default()
	granting := Default()
	granting.PublicWithGrants = true
	for _, tt := range []struct {
		policy Policy
		r      Request
		want   Reason
		field  string
	}{
		{narrow, Request{Port: 3000, Lifetime: time.Minute}, ReasonAllowed, ""},
		{narrow, Request{Port: 8099, Lifetime: time.Second}, ReasonAllowed, ""},
		{narrow, Request{Port: 3001, Lifetime: time.Second}, ReasonPort, "port"},
		{narrow, Request{Port: 8100, Lifetime: time.Second}, ReasonPort, "port"},
		{narrow, Request{Port: 3000, Lifetime: time.Minute + 1}, ReasonLifetime, "expires_in"},
		{narrow, Request{Public: true, Port: 3000, Lifetime: time.Second}, ReasonMode, "public"},
		{Policy{Modes: []Mode{Public}, Ports: narrow.Ports, MaxExpiresIn: 60}, Request{Port: 3000}, ReasonMode, "public"},
		{Policy{Modes: []Mode{Token}, MaxExpiresIn: 60}, Request{Port: 3000}, ReasonPort, "port"},
		{Policy{Modes: []Mode{Token}, Ports: narrow.Ports}, Request{Port: 3000, Lifetime: 1}, ReasonLifetime, "expires_in"},
		{open, Request{Public: true, Port: 1, Lifetime: MaxLifetime}, ReasonAllowed, ""},
		{open, Request{Public: true, Port: 3000, Granted: true}, ReasonGrant, "public"},
		{open, Request{Port: 65535, Granted: true}, ReasonAllowed, ""},
		{granting, Request{Public: true, Port: 3000, Granted: true}, ReasonAllowed, ""},
	} {
		v := tt.policy.Evaluate(tt.r)
		if v.Reason != tt.want || v.Field != tt.field || v.Allowed() != (tt.want == ReasonAllowed) || v.Allowed() != (v.Message == "") {
			t.Errorf("%+v: %+v, want %s at %q", tt.r, v, tt.want, tt.field)
		}
	}
}

func TestPolicyIsReadAsWritten(t *testing.T) {
	p := Policy{Modes: []Mode{Token}, Ports: []Ports{"3000", "8000-8099"}, MaxExpiresIn: 60, AnonymousWakes: 5}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"modes":["token"],"ports":["3000","8000-8099"],"max_expires_in":60,"public_with_grants":false,"anonymous_wakes_per_minute":5}`
	if string(text) != want {
		t.Errorf("%s", text)
	}
	var again Policy
	if err := json.Unmarshal(text, &again); err != nil || !slices.Equal(again.Ports, p.Ports) || again.AnonymousWakes != 5 {
		t.Errorf("%+v, %v", again, err)
	}
	for _, bad := range []string{"", "0", "-", "-5", "+5", "5-", "65536", "1-65536", "9-8", "a", "1-2-3", " 5"} {
		p.Ports = []Ports{Ports(bad)}
		if field, _ := p.Check(); field != "ports[0]" || p.Ports[0].Has(1) || p.Ports[0].Has(5) || p.Ports[0].Has(8) {
			t.Errorf("%q is read as ports", bad)
		}
	}
	for field, bad := range map[string]Policy{
		"modes[0]": {Modes: []Mode{"sso"}, MaxExpiresIn: 1}, "max_expires_in": {MaxExpiresIn: 86401}, "ports": {Ports: make([]Ports, MaxPorts+1), MaxExpiresIn: 1},
		"anonymous_wakes_per_minute": {MaxExpiresIn: 1, AnonymousWakes: -1},
	} {
		if got, message := bad.Check(); got != field || message == "" {
			t.Errorf("%+v: wrong in %q, want %q", bad, got, field)
		}
	}
}
