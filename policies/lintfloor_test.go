package policies

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestLintKnowsTheFloor: an allow rule of which the floor leaves nothing is told, whole or by its destinations; what an exemption of the org opens
// is not, nor what lies around what the floor closes.
func TestLintKnowsTheFloor(t *testing.T) {
	f := newFloor(t, FloorConfig{Hard: []netip.Prefix{cidr("10.231.0.0/16")}, Always: []netip.Prefix{cidr("10.1.0.5/32")}, Exempt: []Exemption{
		{CIDR: cidr("10.1.0.0/16"), Ports: []uint16{5432}, Orgs: []string{"org_1"}}, {CIDR: cidr("10.2.0.0/16"), Orgs: []string{"org_2"}},
	}})
	for name, tt := range map[string]struct {
		rule string
		want []string // path and reason
	}{
		"a private range":                 {`"cidrs": ["10.0.0.0/16"]`, []string{"rules[0] floor_soft"}},
		"two of them":                     {`"cidrs": ["10.0.0.0/16", "192.168.0.0/16"]`, []string{"rules[0] floor_soft"}},
		"one of two":                      {`"cidrs": ["10.0.0.0/16", "11.0.0.0/16"]`, []string{"rules[0].cidrs[0] floor_soft"}},
		"the sandboxes' range":            {`"cidrs": ["10.231.0.9/32"]`, []string{"rules[0] floor_hard"}},
		"around the sandboxes' range":     {`"cidrs": ["10.230.0.0/15"]`, []string{"rules[0] floor_soft"}},
		"reserved":                        {`"cidrs": ["240.0.0.9/32"]`, []string{"rules[0] floor_soft"}},
		"two ranges that meet":            {`"cidrs": ["224.0.0.0/3"]`, []string{"rules[0] floor_soft"}},
		"exempted":                        {`"cidrs": ["10.1.2.0/24"], "ports": [5432]`, nil},
		"exempted, among other ports":     {`"cidrs": ["10.1.2.0/24"], "ports": ["5000-6000"]`, nil},
		"exempted on another port":        {`"cidrs": ["10.1.2.0/24"], "ports": [443]`, []string{"rules[0] floor_soft"}},
		"exempted in part":                {`"cidrs": ["10.0.0.0/15"], "ports": [5432]`, nil},
		"exempted, but always closed":     {`"cidrs": ["10.1.0.5/32"], "ports": [5432]`, []string{"rules[0] floor_hard"}},
		"exempted for another org":        {`"cidrs": ["10.2.0.0/24"]`, []string{"rules[0] floor_soft"}},
		"around what is closed":           {`"cidrs": ["8.0.0.0/5"]`, nil},
		"beside what is closed":           {`"cidrs": ["11.0.0.0/16"]`, nil},
		"mail":                            {`"cidrs": ["11.0.0.0/16"], "ports": [25]`, []string{"rules[0] port25"}},
		"mail among other ports":          {`"cidrs": ["11.0.0.0/16"], "ports": ["25-26"]`, nil},
		"a name that no setting opens":    {`"hosts": ["metadata.google.internal"]`, []string{"rules[0] floor_hard"}},
		"names that no setting opens":     {`"hosts": ["*.localhost"], "shared": true`, []string{"rules[0] floor_hard"}},
		"private IPv6":                    {`"cidrs": ["fd12:3456::/32"]`, []string{"rules[0] floor_soft"}},
		"public IPv6":                     {`"cidrs": ["2600:1::/32"]`, nil},
		"what stands for an IPv4 address": {`"cidrs": ["64:ff9b::a00:1/128"]`, []string{"rules[0] floor_soft"}},
		"what stands for a public one":    {`"cidrs": ["64:ff9b::b00:1/128"]`, nil},
		"what may stand for any":          {`"cidrs": ["64:ff9b::/97"]`, nil},
		"off":                             {`"cidrs": ["10.0.0.0/16"], "enabled": false`, nil},
	} {
		ports := ""
		if strings.Contains(tt.rule, "cidrs") && !strings.Contains(tt.rule, "ports") {
			ports = `, "ports": [443]`
		}
		for _, action := range []string{"allow", "deny"} {
			var got []string
			for _, found := range Lint(parse(t, `{"rules": [{"id": "a", "action": "`+action+`", `+tt.rule+ports+`}]}`), LintOptions{Now: testNow, Floor: f, Org: "org_1"}) {
				if found.Code == FindNeverMatches {
					reason := ""
					if _, err := fmt.Sscanf(found.Message[strings.LastIndex(found.Message, "(")+1:], "%s", &reason); err != nil || found.Rule != "a" || found.Hint == "" {
						t.Errorf("%s: %+v, %v", name, found, err)
					}
					got = append(got, found.Path+" "+strings.TrimSuffix(reason, "),"))
				}
			}
			want := tt.want
			if action == "deny" {
				want = nil // it denies what is closed anyway, on purpose
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s, %s: got %q, want %q", name, action, got, want)
			}
		}
	}
	built := parse(t, `{"rules": [{"id": "a", "action": "allow", "cidrs": ["10.1.0.0/16"], "ports": [5432]}, {"id": "b", "action": "allow", "cidrs": ["11.0.0.0/16"], "ports": [443]}]}`)
	if found := Lint(built, LintOptions{Now: testNow}); len(found) != 1 || found[0].Code != FindNeverMatches || found[0].Rule != "a" {
		t.Errorf("by the built-in floor: %+v", found)
	}
}

// TestFloorCoverEqualsTheFloor: a range is closed exactly if each of its addresses is, on each of the ports.
func TestFloorCoverEqualsTheFloor(t *testing.T) {
	// A single address that is open in the middle of what is closed, which chance may not come upon.
	f, err := NewFloor(FloorConfig{Exempt: []Exemption{{CIDR: netip.MustParsePrefix("10.0.0.200/32"), Orgs: []string{"org_1"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if c := newFloorCover(f, "org_1"); c.closesRange(netip.MustParsePrefix("10.0.0.0/24"), c.ports([]PortRange{Port(443)})) != "" {
		t.Fatal("a range with an open address is told to be closed")
	}
	rapid.Check(t, func(t *rapid.T) {
		inside := rapid.Custom(func(t *rapid.T) netip.Prefix {
			bits := rapid.IntRange(22, 32).Draw(t, "bits")
			last := rapid.Uint32Range(0, 1<<10-1).Draw(t, "last")
			return netip.PrefixFrom(addrIn(last), bits).Masked()
		})
		cfg := FloorConfig{}
		for _, p := range rapid.SliceOfN(inside, 0, 3).Draw(t, "hard") {
			cfg.Always = append(cfg.Always, p)
		}
		for _, p := range rapid.SliceOfN(inside, 0, 3).Draw(t, "exempt") {
			cfg.Exempt = append(cfg.Exempt, Exemption{CIDR: p, Ports: pick(t, "ports", [][]uint16{nil, {443}, {25}, {5432}}), Orgs: []string{pick(t, "org", []string{"org_1", "org_2"})}})
		}
		f, err := NewFloor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		p := inside.Draw(t, "asked")
		of := pick(t, "of", [][]PortRange{{Port(443)}, {Port(25)}, {{First: 25, Last: 26}}, {{First: 5000, Last: 6000}}})
		c := newFloorCover(f, "org_1")
		closed := true
		for n := range uint32(1) << (32 - p.Bits()) {
			b := p.Addr().As4()
			a := addrIn((binary.BigEndian.Uint32(b[:]) + n) & (1<<10 - 1))
			for _, r := range of {
				for port := int(r.First); port <= int(r.Last); port++ {
					closed = closed && !f.Judge("org_1", a, uint16(port)).Allowed()
				}
			}
		}
		if got := c.closesRange(p, c.ports(of)) != ""; got != closed {
			t.Fatalf("%v on %v: closed %v, told %v", p, of, closed, got)
		}
	})
}

// addrIn is one of 10.0.0.0/22.
func addrIn(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 10<<24|n)
	return netip.AddrFrom4(b)
}
