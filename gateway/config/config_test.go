package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestUnknownKeyIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"top level":     {"egres: {}", `did you mean "egress"`},
		"nested":        {"egress:\n  upstream_dsn: [192.0.2.1]", `line 2: unknown key "egress.upstream_dsn"; did you mean "upstream_dns"`},
		"in a list":     {"egress: {floor_exempt: [{cdir: 203.0.113.0/24}]}", `"egress.floor_exempt[0].cdir"; did you mean "cidr"`},
		"like none":     {"egress: {colour: red}", `unknown key "egress.colour"; known are allow_hidden_names, doors, floor_exempt, limits, sources, synthetic_range, upstream, upstream_ca, upstream_dns`},
		"not a mapping": {"- 1", "cannot unmarshal"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse([]byte(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Parse([]byte("egress: {upstream_dns: [192.0.2.1]}")); err != nil {
		t.Fatalf("the twin with the right key: %v", err)
	}
}

func TestExemptionOfTheHardFloorIsRefused(t *testing.T) {
	for cidr, ok := range map[string]bool{
		"203.0.113.0/24": true,
		"10.0.0.0/16":    true,
		"10.200.0.0/24":  false, // sandboxes live there
		"169.254.0.0/16": false,
		"127.0.0.1/32":   false,
		"198.18.5.0/24":  false,
		"0.0.0.0/0":      false,
	} {
		_, err := Parse([]byte("egress: {floor_exempt: [{cidr: " + cidr + "}]}"))
		if (err == nil) != ok {
			t.Errorf("%s: got %v, want accepted = %v", cidr, err, ok)
		}
	}
}

func TestDefaultsAndForms(t *testing.T) {
	c, err := Parse([]byte("egress: {upstream_dns: [192.0.2.1, '192.0.2.2:5353']}\nlimits: {sandbox_memory: 512Mi}"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"192.0.2.1:53", "192.0.2.2:5353"}; !slices.Equal(c.Egress.UpstreamDNS, want) {
		t.Errorf("upstream_dns: got %v, want %v", c.Egress.UpstreamDNS, want)
	}
	if n, _ := c.MemoryBytes(); n != 512<<20 {
		t.Errorf("sandbox_memory: got %d", n)
	}
	if c.Tunnels.Domain != "tunnel.localhost" || !*c.Nodes.BuildBase {
		t.Errorf("defaults: got %+v", c)
	}
}

func TestWrongValuesNameTheirField(t *testing.T) {
	for in, want := range map[string]string{
		"egress: {upstream_dns: [resolver]}":          "egress.upstream_dns[0]",
		"egress: {synthetic_range: 10.200.0.0/16}":    "egress.synthetic_range",
		"nodes: {address_range: 10.0.0.0/30}":         "nodes.address_range",
		"limits: {sandbox_memory: lots}":              "limits.sandbox_memory",
		"limits: {sandboxes: -1}":                     "limits.sandboxes",
		"egress: {floor_exempt: [{cidr: x}]}":         "egress.floor_exempt[0].cidr",
		"egress: {limits: {org_in: fast}}":            "egress.limits.org_in",
		"egress: {limits: {connections_per_org: -1}}": "egress.limits.connections_per_org",
	} {
		if _, err := Parse([]byte(in)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error that names %s", in, err, want)
		}
	}
}

func TestLoopbackResolversAreLeftOut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(path, []byte("# stub\nnameserver 127.0.0.53\nnameserver 192.0.2.9\noptions edns0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := nameservers(path); !slices.Equal(got, []string{"192.0.2.9:53"}) {
		t.Fatalf("got %v", got)
	}
}
