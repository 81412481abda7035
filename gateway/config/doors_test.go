package config

import (
	"strings"
	"testing"

	"portreeve.dev/gateway/role"
)

func TestDoors(t *testing.T) {
	for name, c := range map[string]struct {
		text, wrong string
		want        role.ControlDoors
	}{
		"none":                      {"", "", role.ControlDoors{Own: true}},
		"on loopback":               {"http: 127.0.0.1:8444", "", role.ControlDoors{HTTP: "localhost:8444", Own: true}},
		"both":                      {"http: 0.0.0.0:8444, socks: '[::]:1085', name: door.example.com", "", role.ControlDoors{HTTP: "door.example.com:8444", SOCKS: "door.example.com:1085", Own: true}},
		"with files":                {"socks: 127.0.0.1:1085, certificate: a.pem, key: b.pem", "", role.ControlDoors{SOCKS: "localhost:1085"}},
		"without a port":            {"http: 127.0.0.1", "egress.doors.http", role.ControlDoors{}},
		"at one address":            {"http: 127.0.0.1:8444, socks: 127.0.0.1:8444", "egress.doors.socks", role.ControlDoors{}},
		"on the network, no name":   {"http: 0.0.0.0:8444", "egress.doors.name", role.ControlDoors{}},
		"with an address as a name": {"http: 0.0.0.0:8444, name: 192.0.2.1", "egress.doors.name", role.ControlDoors{}},
		"with half a certificate":   {"http: 127.0.0.1:8444, key: b.pem", "certificate and key", role.ControlDoors{}},
		"a certificate for nothing": {"certificate: a.pem, key: b.pem", "without a door", role.ControlDoors{}},
		"with an unknown key":       {"htpp: 127.0.0.1:8444", "egress.doors.htpp", role.ControlDoors{}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Parse([]byte("egress: {doors: {" + c.text + "}}"))
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("%v, want a word on %s", err, c.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := got.Egress.Doors.Control(); d != c.want {
				t.Errorf("%+v, want %+v", d, c.want)
			}
		})
	}
}
