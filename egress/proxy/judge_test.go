package proxy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"portreeve.dev/policies"
)

// addressDoors are the ways on which a sandbox can name an address: each tries one, and returns what it was told, if it was told anything.
var addressDoors = map[string]func(w *world, host string, port uint16) *problem{
	"by the wire": func(w *world, host string, port uint16) *problem {
		exchangeRaw(w.t, w.connect(host, port), "hello\n")
		return nil
	},
	"by CONNECT": func(w *world, host string, port uint16) *problem {
		nc, answers := w.enter(DoorTarget{Addr: netip.MustParseAddr(host), Port: port})
		r := <-answers
		if r == nil {
			exchangeRaw(w.t, nc, "hello\n")
			return nil
		}
		nc.Close()
		p := &problem{}
		if err := json.Unmarshal(r.Body, p); err != nil {
			w.t.Error(err)
		}
		return p
	},
	"in absolute form": func(w *world, host string, port uint16) *problem {
		nc, _ := w.enter(DoorTarget{Forward: true})
		fmt.Fprintf(nc, "GET http://%s:%d/ HTTP/1.1\r\nHost: %s:%d\r\n\r\n", host, port, host, port)
		resp, body := readAnswer(w.t, bufio.NewReader(nc))
		nc.Close()
		p := &problem{}
		if resp.StatusCode >= 400 {
			if err := json.Unmarshal([]byte(body), p); err != nil {
				w.t.Error(err)
			}
		}
		return p
	},
}

// TestAddressIsJudgedByTheFloorFirst: whatever door an address comes by, and whether a rule allows it or none does, the record and the answer
// say that the floor closes it. The neighbour that the floor leaves to the policy is the policy's.
func TestAddressIsJudgedByTheFloorFirst(t *testing.T) {
	const none = allowGood
	const named = `{"id": "net", "action": "allow", "cidrs": ["10.0.0.0/8", "11.0.0.0/8"], "protocols": ["http", "tcp"], "ports": [80, 25]}`
	const everywhere = `{"id": "net", "action": "allow", "cidrs": ["0.0.0.0/0"], "protocols": ["http", "tcp"], "ports": [80, 25]}`
	for _, c := range []struct {
		name, rules, host string
		port              uint16
		want              policies.Reason
	}{
		{"metadata", none, "169.254.169.254", 80, policies.ReasonFloorHard},
		{"metadata that a rule allows", everywhere, "169.254.169.254", 80, policies.ReasonFloorHard},
		{"a private address", none, "10.2.0.1", 80, policies.ReasonFloorSoft},
		{"a private address that a rule allows", named, "10.2.0.1", 80, policies.ReasonFloorSoft},
		{"mail", none, "11.0.0.1", 25, policies.ReasonPort25},
		{"an exempted address without a rule", none, "10.1.0.1", 80, policies.ReasonNoRule},
		{"an exempted address that a rule names", named, "10.1.0.1", 80, policies.ReasonAllowed},
		{"an exempted address that no rule names", everywhere, "10.1.0.1", 80, policies.ReasonFloorSoft},
		{"a public address without a rule", none, "11.0.0.1", 80, policies.ReasonNoRule},
		{"a public address with one", everywhere, "11.0.0.1", 80, policies.ReasonAllowed},
	} {
		for door, try := range addressDoors {
			w := newWorld(t, c.rules)
			w.under(policies.FloorConfig{Exempt: []policies.Exemption{{CIDR: netip.MustParsePrefix("10.1.0.0/16"), Orgs: []string{testOrg}}}})
			if c.want == policies.ReasonAllowed {
				w.serveTCP(c.host, c.port, greet)
			}
			p := try(w, c.host, c.port)
			d := w.decisions(1, false)[0]
			if d.Reason != c.want.String() || d.Addr != c.host || d.Host != "" {
				t.Errorf("%s %s: recorded %+v, want %s", c.name, door, d, c.want)
			}
			if dialled := len(w.dialer.dials()) > 0; dialled != (c.want == policies.ReasonAllowed) {
				t.Errorf("%s %s: dialled %v", c.name, door, w.dialer.dials())
			}
			if p != nil && c.want != policies.ReasonAllowed && (p.Reason != c.want.String() || p.Requestable || p.RequestURL != "") {
				t.Errorf("%s %s: told %+v", c.name, door, p)
			}
		}
	}
}

// TestNoFloorNoConnection: without a floor, as while no policy is fresh, nothing goes anywhere.
func TestNoFloorNoConnection(t *testing.T) {
	w := newWorld(t, allowRaw)
	w.serveTCP("raw.test", 9000, greet)
	w.floor.Store(nil)
	if got := exchangeRaw(t, w.connect("raw.test", 9000), ""); got != "" {
		t.Errorf("got %q", got)
	}
	if d := w.decisions(1, false)[0]; d.Reason != policies.ReasonStalePolicy.String() || len(w.dialer.dials()) > 0 {
		t.Errorf("recorded %+v, dialled %v", d, w.dialer.dials())
	}
	w.under(policies.FloorConfig{Exempt: []policies.Exemption{{CIDR: netip.MustParsePrefix("203.0.113.0/24"), Orgs: []string{testOrg}}}})
	if got := exchangeRaw(t, w.connect("raw.test", 9000), ""); got == "" {
		t.Error("with one it is not reached either")
	}
}
