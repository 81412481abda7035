package policies

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func addr(s string) netip.Addr   { return netip.MustParseAddr(s) }
func cidr(s string) netip.Prefix { return netip.MustParsePrefix(s) }
func newFloor(t *testing.T, cfg FloorConfig) *Floor {
	t.Helper()
	f, err := NewFloor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Each range by its first and last address, and by the neighbours just outside of it.
func TestClassifyEachRangeAndItsNeighbours(t *testing.T) {
	tests := []struct {
		name        string
		class       Class
		first, last string
		below       string
		belowClass  Class
		above       string
		aboveClass  Class
	}{
		{"this host", Hard, "0.0.0.0", "0.255.255.255", "", 0, "1.0.0.0", Public},
		{"loopback", Hard, "127.0.0.0", "127.255.255.255", "126.255.255.255", Public, "128.0.0.0", Public},
		{"link-local", Hard, "169.254.0.0", "169.254.255.255", "169.253.255.255", Public, "169.255.0.0", Public},
		{"Alibaba metadata", Hard, "100.100.100.200", "100.100.100.200", "100.100.100.199", Soft, "100.100.100.201", Soft},
		{"Azure wire server", Hard, "168.63.129.16", "168.63.129.16", "168.63.129.15", Public, "168.63.129.17", Public},
		{"Oracle metadata", Hard, "192.0.0.192", "192.0.0.192", "192.0.0.191", Soft, "192.0.0.193", Soft},
		{"synthetic", Hard, "198.18.0.0", "198.19.255.255", "198.17.255.255", Public, "198.20.0.0", Public},
		{"multicast", Hard, "224.0.0.0", "239.255.255.255", "223.255.255.255", Public, "240.0.0.0", Soft},
		{"broadcast", Hard, "255.255.255.255", "255.255.255.255", "255.255.255.254", Soft, "", 0},
		{"ten", Soft, "10.0.0.0", "10.255.255.255", "9.255.255.255", Public, "11.0.0.0", Public},
		{"172.16", Soft, "172.16.0.0", "172.31.255.255", "172.15.255.255", Public, "172.32.0.0", Public},
		{"192.168", Soft, "192.168.0.0", "192.168.255.255", "192.167.255.255", Public, "192.169.0.0", Public},
		{"carriers", Soft, "100.64.0.0", "100.127.255.255", "100.63.255.255", Public, "100.128.0.0", Public},
		{"assignments", Soft, "192.0.0.0", "192.0.0.255", "191.255.255.255", Public, "192.0.1.0", Public},
		{"documentation 1", Soft, "192.0.2.0", "192.0.2.255", "192.0.1.255", Public, "192.0.3.0", Public},
		{"documentation 2", Soft, "198.51.100.0", "198.51.100.255", "198.51.99.255", Public, "198.51.101.0", Public},
		{"documentation 3", Soft, "203.0.113.0", "203.0.113.255", "203.0.112.255", Public, "203.0.114.0", Public},
		{"6to4 relays", Soft, "192.88.99.0", "192.88.99.255", "192.88.98.255", Public, "192.88.100.0", Public},
		{"reserved", Soft, "240.0.0.0", "255.255.255.254", "239.255.255.255", Hard, "255.255.255.255", Hard},

		{"unspecified", Hard, "::", "::", "", 0, "::1", Hard},
		{"loopback 6", Hard, "::1", "::1", "::", Hard, "::2", Hard}, // ::2 is 0.0.0.2
		{"link-local 6", Hard, "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fe7f:ffff::", Soft, "fec0::", Soft},
		{"multicast 6", Hard, "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "feff::", Soft, "", 0},
		{"AWS metadata 6", Hard, "fd00:ec2::", "fd00:ec2:ffff:ffff:ffff:ffff:ffff:ffff", "fd00:ec1:ffff::", Soft, "fd00:ec3::", Soft},
		{"GCP metadata 6", Hard, "fd20:ce::254", "fd20:ce::254", "fd20:ce::253", Soft, "fd20:ce::255", Soft},
		{"Scaleway metadata 6", Hard, "fd00:42::42", "fd00:42::42", "fd00:42::41", Soft, "fd00:42::43", Soft},
		{"private 6", Soft, "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fbff::", Soft, "fe00::", Soft},
		{"assignments 6", Soft, "2001:2::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "2000:ffff::", Public, "2001:200::", Public},
		{"documentation 6", Soft, "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2001:db7:ffff::", Public, "2001:db9::", Public},
		{"documentation 6, new", Soft, "3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "3ffe:ffff::", Public, "3fff:1000::", Public},
		{"global unicast", Public, "2606:4700::1111", "2a00:1450::1", "1fff:ffff::", Soft, "4000::", Soft},
	}
	for _, tt := range tests {
		check := func(what, s string, want Class) {
			if s == "" {
				return
			}
			a := addr(s)
			if got := Classify(a); got != want {
				t.Errorf("%s: %s %s is %v, want %v", tt.name, what, s, got, want)
			}
			if a.Is4() {
				if got := Classify(netip.AddrFrom16(a.As16())); got != want {
					t.Errorf("%s: %s ::ffff:%s is %v, want %v", tt.name, what, s, got, want)
				}
			}
		}
		check("first", tt.first, tt.class)
		check("last", tt.last, tt.class)
		check("below", tt.below, tt.belowClass)
		check("above", tt.above, tt.aboveClass)
	}
}

func TestClassifySeesThroughDisguises(t *testing.T) {
	for s, want := range map[string]Class{
		"::ffff:169.254.169.254":    Hard,
		"::ffff:203.0.112.1":        Public,
		"64:ff9b::169.254.169.254":  Hard,
		"64:ff9b::10.0.0.1":         Soft,
		"64:ff9b::1.1.1.1":          Public,
		"64:ff9b:1::127.0.0.1":      Hard,
		"2002:7f00:1::":             Hard,
		"2002:101:101::":            Soft,
		"2001:0:101:101::80ff:fffe": Hard, // client 127.0.0.1
		"2001:0:7f00:1::fefe:fefe":  Hard, // server 127.0.0.1
		"2001:0:101:101::fefe:fefe": Soft,
		"::127.0.0.1":               Hard,
		"::1.1.1.1":                 Soft,
		"fe80::1%eth0":              Hard,
		"2606:4700::1%eth0":         Public,
	} {
		if got := Classify(addr(s)); got != want {
			t.Errorf("%s is %v, want %v", s, got, want)
		}
	}
	if Classify(netip.Addr{}) != Hard {
		t.Error("an invalid address is not hard")
	}
}

func TestNoSettingOpensTheHardFloor(t *testing.T) {
	own := cidr("203.0.113.0/28")
	for _, hard := range append(append([]netip.Prefix{}, hardRanges...), own) {
		for _, exempt := range []netip.Prefix{hard, netip.PrefixFrom(hard.Addr(), max(hard.Bits()-1, 0)).Masked(), netip.PrefixFrom(hard.Addr(), hard.Addr().BitLen())} {
			_, err := NewFloor(FloorConfig{Hard: []netip.Prefix{own}, Exempt: []Exemption{{CIDR: exempt, Orgs: []string{EveryOrg}}}})
			if err == nil || !strings.Contains(err.Error(), exempt.String()) || !strings.Contains(err.Error(), "hard") {
				t.Errorf("exempting %v, which touches %v: %v", exempt, hard, err)
			}
		}
	}
	_, err := NewFloor(FloorConfig{Hard: []netip.Prefix{cidr("10.200.0.0/16")}, Exempt: []Exemption{{CIDR: cidr("10.0.0.0/8"), Orgs: []string{"org_1"}}}})
	if err == nil || !strings.Contains(err.Error(), "10.0.0.0/8") || !strings.Contains(err.Error(), "10.200.0.0/16") {
		t.Errorf("the error does not name both: %v", err)
	}
	// The twin beside it is fine.
	newFloor(t, FloorConfig{Hard: []netip.Prefix{cidr("10.200.0.0/16")}, Exempt: []Exemption{{CIDR: cidr("10.201.0.0/16"), Orgs: []string{"org_1"}}}})
}

func TestFloorJudge(t *testing.T) {
	f := newFloor(t, FloorConfig{
		Hard: []netip.Prefix{cidr("10.200.0.0/16"), cidr("198.41.0.4/32")},
		Exempt: []Exemption{
			{CIDR: cidr("10.1.0.0/16"), Ports: []uint16{5432}, Orgs: []string{"org_1"}},
			{CIDR: cidr("203.0.113.0/24"), Orgs: []string{EveryOrg}},
			{CIDR: cidr("1.1.1.0/24"), Ports: []uint16{25}, Orgs: []string{"org_1"}},
		},
	})
	tests := []struct {
		name, org, addr string
		port            uint16
		want            Reason
	}{
		{"public", "org_1", "1.1.1.1", 443, ReasonAllowed},
		{"exempt", "org_1", "10.1.2.3", 5432, ReasonAllowed},
		{"exempt, mapped", "org_1", "::ffff:10.1.2.3", 5432, ReasonAllowed},
		{"exempt, other port", "org_1", "10.1.2.3", 5433, ReasonFloorSoft},
		{"exempt, other org", "org_2", "10.1.2.3", 5432, ReasonFloorSoft},
		{"exempt, neighbour", "org_1", "10.2.0.0", 5432, ReasonFloorSoft},
		{"exempt by NAT64", "org_1", "64:ff9b::10.1.2.3", 5432, ReasonFloorSoft},
		{"every org", "org_9", "203.0.113.9", 8443, ReasonAllowed},
		{"nobody", "", "203.0.113.9", 8443, ReasonFloorSoft},
		{"every port is without 25", "org_9", "203.0.113.9", 25, ReasonFloorSoft},
		{"port 25", "org_1", "8.8.8.8", 25, ReasonPort25},
		{"port 25, exempt", "org_1", "1.1.1.9", 25, ReasonAllowed},
		{"port 25, other org", "org_2", "1.1.1.9", 25, ReasonPort25},
		{"port 26", "org_1", "8.8.8.8", 26, ReasonAllowed},
		{"metadata", "org_1", "169.254.169.254", 80, ReasonFloorHard},
		{"own", "org_1", "198.41.0.4", 443, ReasonFloorHard},
		{"beside own", "org_1", "198.41.0.5", 443, ReasonAllowed},
		{"sandbox", "org_1", "10.200.0.1", 443, ReasonFloorHard},
		{"sandbox by NAT64", "org_1", "64:ff9b::10.200.0.1", 443, ReasonFloorHard},
		{"sandbox by 6to4", "org_1", "2002:ac8:1::", 443, ReasonFloorHard},
		{"port 0", "org_1", "1.1.1.1", 0, ReasonFloorHard},
	}
	for _, tt := range tests {
		v := f.Judge(tt.org, addr(tt.addr), tt.port)
		if v.Reason != tt.want || v.Allowed() != (tt.want == ReasonAllowed) || v.Layer != FloorLayer {
			t.Errorf("%s: %+v, want %s", tt.name, v, tt.want)
		}
	}
	if v := f.Judge("org_1", addr("10.1.2.3"), 5432); !v.Named {
		t.Error("an address opened by an exemption asks for no rule that names it")
	}
	if v := f.Judge("org_1", netip.Addr{}, 443); v.Reason != ReasonFloorHard {
		t.Errorf("invalid address: %+v", v)
	}
}

func TestFloorNames(t *testing.T) {
	f := newFloor(t, FloorConfig{})
	for host, want := range map[string]Reason{
		"metadata.google.internal": ReasonFloorHard, "METADATA.google.internal.": ReasonFloorHard, "localhost": ReasonFloorHard,
		"x.localhost": ReasonFloorHard, "instance-data": ReasonFloorHard,
		"xmetadata.google.internal": ReasonAllowed, "localhost.test": ReasonAllowed, "notlocalhost": ReasonAllowed, "good.test": ReasonAllowed,
		"127.0.0.1": ReasonHostInvalid, "0x7f000001": ReasonHostInvalid, "a..b": ReasonHostInvalid, "": ReasonHostInvalid,
	} {
		if v := f.JudgeHost(host); v.Reason != want || v.Allowed() != (want == ReasonAllowed) {
			t.Errorf("%q: %+v, want %s", host, v, want)
		}
	}
}

func TestNilFloorDenies(t *testing.T) {
	var f *Floor
	if v := f.Judge("org_1", addr("1.1.1.1"), 443); v.Allowed() || v.Reason != ReasonFloorHard {
		t.Errorf("address: %+v", v)
	}
	if v := f.JudgeHost("good.test"); v.Allowed() || v.Reason != ReasonFloorHard {
		t.Errorf("name: %+v", v)
	}
}

func TestExemptionsThatAreRefused(t *testing.T) {
	for name, e := range map[string]Exemption{
		"no org":           {CIDR: cidr("10.0.0.0/8")},
		"no range":         {Orgs: []string{EveryOrg}},
		"host bits":        {CIDR: cidr("10.0.0.1/8"), Orgs: []string{EveryOrg}},
		"port 0":           {CIDR: cidr("10.0.0.0/8"), Ports: []uint16{0}, Orgs: []string{EveryOrg}},
		"everything":       {CIDR: cidr("0.0.0.0/0"), Orgs: []string{EveryOrg}},
		"transition range": {CIDR: cidr("64:ff9b::a01:0/112"), Orgs: []string{EveryOrg}},
	} {
		if _, err := NewFloor(FloorConfig{Exempt: []Exemption{e}}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewFloor(FloorConfig{Hard: []netip.Prefix{{}}}); err == nil {
		t.Error("an invalid hard range was accepted")
	}
}

// Each dial pays for this once per address.
func BenchmarkJudge(b *testing.B) {
	f, _ := NewFloor(FloorConfig{Hard: []netip.Prefix{cidr("10.200.0.0/16")}})
	a := addr("1.1.1.1")
	b.ReportAllocs()
	for b.Loop() {
		f.Judge("org_1", a, 443)
	}
}

// Of an answer the port is not known yet: what is open on some port may be told, what is open on none not.
func TestFloorJudgesAnswers(t *testing.T) {
	f, err := NewFloor(FloorConfig{Hard: []netip.Prefix{netip.MustParsePrefix("10.200.0.0/16")}, Exempt: []Exemption{
		{CIDR: netip.MustParsePrefix("10.0.0.0/24"), Ports: []uint16{5432}, Orgs: []string{"org_1"}},
		{CIDR: netip.MustParsePrefix("10.0.1.0/24"), Orgs: []string{EveryOrg}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		org, addr string
		reason    Reason
		named     bool
	}{
		{"org_1", "8.8.8.8", ReasonAllowed, false},
		{"org_1", "10.0.0.5", ReasonAllowed, true},
		{"org_2", "10.0.0.5", ReasonFloorSoft, false},
		{"org_2", "10.0.1.5", ReasonAllowed, true},
		{"org_1", "10.0.2.5", ReasonFloorSoft, false},
		{"org_1", "10.200.0.1", ReasonFloorHard, false},
		{"org_1", "127.0.0.1", ReasonFloorHard, false},
	} {
		if v := f.JudgeAnswer(tt.org, netip.MustParseAddr(tt.addr)); v.Reason != tt.reason || v.Named != tt.named || v.Allowed() != (tt.reason == ReasonAllowed) {
			t.Errorf("%s for %s: %+v", tt.addr, tt.org, v)
		}
	}
	if v := (*Floor)(nil).JudgeAnswer("org_1", netip.MustParseAddr("8.8.8.8")); v.Allowed() {
		t.Error("no floor, and an answer")
	}
}

func TestAlwaysIsClosedInsideAnExemption(t *testing.T) {
	f, err := NewFloor(FloorConfig{
		Always: []netip.Prefix{netip.MustParsePrefix("10.0.0.5/32")},
		Exempt: []Exemption{{CIDR: netip.MustParsePrefix("10.0.0.0/8"), Orgs: []string{EveryOrg}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for text, open := range map[string]bool{"10.0.0.5": false, "::ffff:10.0.0.5": false, "64:ff9b::10.0.0.5": false, "10.0.0.4": true, "10.0.0.6": true} {
		addr := netip.MustParseAddr(text)
		if v := f.Judge("org", addr, 3128); v.Allowed() != open || !open && v.Reason != ReasonFloorHard {
			t.Errorf("%s: %+v", text, v)
		}
		if v := f.JudgeAnswer("org", addr); v.Allowed() != open {
			t.Errorf("%s as an answer: %+v", text, v)
		}
	}
}

// TestExemptionEnds: an exemption opens nothing from its end on, for dials and for answers, and the others stay.
func TestExemptionEnds(t *testing.T) {
	end := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
	f := newFloor(t, FloorConfig{Exempt: []Exemption{
		{CIDR: cidr("10.1.0.0/16"), Orgs: []string{EveryOrg}, ExpiresAt: end}, {CIDR: cidr("10.2.0.0/16"), Orgs: []string{EveryOrg}},
	}})
	for _, at := range []time.Time{{}, end.Add(-time.Microsecond), end, end.Add(time.Hour)} {
		now := f.At(at)
		for a, want := range map[string]bool{"10.1.0.1": at.Before(end), "10.2.0.1": true, "10.3.0.1": false} {
			if v, answer := now.Judge("org_1", addr(a), 443), now.JudgeAnswer("org_1", addr(a)); v.Allowed() != want || answer.Allowed() != want {
				t.Errorf("%s at %v: %+v, as an answer %+v; want %v", a, at, v, answer, want)
			}
		}
	}
	if (*Floor)(nil).At(end) != nil {
		t.Error("no floor, and one at a time")
	}
}

// TestFloorWith: what is put on a floor is checked as what it was made with, the error names the field and not its value, and the floor
// itself stays as it was.
func TestFloorWith(t *testing.T) {
	base := newFloor(t, FloorConfig{Hard: []netip.Prefix{cidr("10.200.0.0/16")}, Always: []netip.Prefix{cidr("10.1.0.5/32")}, Exempt: []Exemption{{CIDR: cidr("10.2.0.0/16"), Orgs: []string{"org_1"}}}})
	with, err := base.With(Exemption{CIDR: cidr("10.1.0.0/16"), Orgs: []string{"org_1"}})
	if err != nil {
		t.Fatal(err)
	}
	for a, want := range map[string][2]bool{"10.1.0.1": {false, true}, "10.1.0.5": {false, false}, "10.2.0.1": {true, true}, "10.200.0.1": {false, false}} {
		if got := [2]bool{base.Judge("org_1", addr(a), 443).Allowed(), with.Judge("org_1", addr(a), 443).Allowed()}; got != want {
			t.Errorf("%s: without and with it %v, want %v", a, got, want)
		}
	}
	all := []string{EveryOrg}
	for field, e := range map[string]Exemption{
		"cidr": {CIDR: cidr("10.0.0.0/8"), Orgs: all}, "orgs": {CIDR: cidr("10.1.0.0/16")}, "ports[1]": {CIDR: cidr("10.1.0.0/16"), Ports: []uint16{443, 0}, Orgs: all},
	} {
		_, err := base.With(e)
		var wrong *FieldError
		if !errors.As(err, &wrong) || wrong.Path != field || strings.Contains(wrong.Message, e.CIDR.String()) {
			t.Errorf("%s: %v", field, err)
		}
	}
	if none, err := (*Floor)(nil).With(Exemption{CIDR: cidr("10.1.0.0/16"), Orgs: all}); none != nil || err != nil {
		t.Errorf("on no floor: %v, %v", none, err)
	}
}
