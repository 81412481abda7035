package config

import (
	"net"
	"strings"
	"testing"
)

func TestSourcesAreReadStrictly(t *testing.T) {
	for sources, want := range map[string]string{
		"{}":                                 "",
		"{acme: [192.0.2.7]}":                "",
		"{acme: [192.0.2.7, '2001:db8::7']}": "",
		"{acme: [192.0.2.7], other: [192.0.2.7]}": "",
		"{acme: []}":                     "egress.sources.acme",
		"{acme: [192.0.2.7, 192.0.2.8]}": "second address",
		"{acme: [gateway.test]}":         "egress.sources.acme",
		"{acme: ['::ffff:192.0.2.7']}":   "egress.sources.acme",
		"{acme: [127.0.0.1]}":            "nothing leaves",
		"{acme: [0.0.0.0]}":              "nothing leaves",
		"{acme: ['fe80::1']}":            "nothing leaves",
		"{'*': [192.0.2.7]}":             "egress.sources",
	} {
		_, err := Parse([]byte("egress: {sources: " + sources + "}"))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", sources, err, want)
		}
	}
}

func TestSourceMustBeLocal(t *testing.T) {
	all, err := net.InterfaceAddrs()
	if err != nil || len(all) == 0 {
		t.Fatal(err)
	}
	for _, a := range all {
		ip := a.(*net.IPNet).IP
		if ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue
		}
		if err := (Sources{"acme": {ip.String()}}).CheckLocal(); err != nil {
			t.Errorf("our own %v: %v", ip, err)
		}
	}
	for _, a := range []string{"192.0.2.7", "2001:db8::7"} {
		if err := (Sources{"acme": {a}}).CheckLocal(); err == nil || !strings.Contains(err.Error(), "egress.sources.acme") {
			t.Errorf("%s: %v", a, err)
		}
	}
	if err := (Sources{}).CheckLocal(); err != nil {
		t.Error(err)
	}
}
