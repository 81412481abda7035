package netaddr

import (
	"net/netip"
	"testing"
)

func TestCanonicalTakesIPv4Out(t *testing.T) {
	for in, want := range map[string]string{
		"203.0.113.7":            "203.0.113.7",
		"::ffff:169.254.169.254": "169.254.169.254",
		"::ffff:127.0.0.1%eth0":  "127.0.0.1",
		"fe80::1%eth0":           "fe80::1",
		"::fffe:127.0.0.1":       "::fffe:7f00:1", // just outside
		"2001:db8::1":            "2001:db8::1",
	} {
		if got := Canonical(netip.MustParseAddr(in)); got != netip.MustParseAddr(want) {
			t.Errorf("Canonical(%s) = %v, want %s", in, got, want)
		}
	}
	if Canonical(netip.Addr{}).IsValid() {
		t.Error("the zero address became valid")
	}
}

func TestEmbedFindsIPv4(t *testing.T) {
	tests := []struct {
		name, in string
		want     []string
	}{
		{"nat64", "64:ff9b::a9fe:a9fe", []string{"169.254.169.254"}},
		{"just outside nat64", "64:ff9b::1:a9fe:a9fe", nil},
		{"local nat64 at each place", "64:ff9b:1:7f00:0:100:a9fe:a9fe", []string{"127.0.0.1", "0.1.0.169", "169.254.169.254"}},
		{"just outside local nat64", "64:ff9b:2::a9fe:a9fe", nil},
		{"6to4", "2002:7f00:1::1", []string{"127.0.0.1"}},
		{"just outside 6to4", "2003:7f00:1::1", nil},
		{"teredo server and client", "2001:0:cb00:7101::80ff:fffe", []string{"203.0.113.1", "127.0.0.1"}},
		{"just outside teredo", "2001:1:cb00:7101::80ff:fffe", nil},
		{"compatible", "::7f00:1", []string{"127.0.0.1"}},
		{"just outside compatible", "::1:7f00:1", nil},
		{"ipv4 itself", "127.0.0.1", nil},
		{"public ipv6", "2606:4700::1111", nil},
	}
	for _, tt := range tests {
		e := Embed(netip.MustParseAddr(tt.in))
		if len(e.All()) != len(tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, e.All(), tt.want)
			continue
		}
		for i, want := range tt.want {
			if e.All()[i] != netip.MustParseAddr(want) {
				t.Errorf("%s: %v, want %v", tt.name, e.All(), tt.want)
			}
		}
	}
}

func TestParsePrefixHasOneForm(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.0/8":          "10.0.0.0/8",
		"203.0.113.7":         "203.0.113.7/32",
		"::ffff:10.0.0.0/104": "10.0.0.0/8",
		"::ffff:10.1.2.3":     "10.1.2.3/32",
		"2001:DB8::/32":       "2001:db8::/32",
		"0.0.0.0/0":           "0.0.0.0/0",
		"10.0.0.1/8":          "", // bits beyond the length
		"::ffff:10.0.0.0/90":  "", // half of each family
		"010.0.0.0/8":         "",
		"10.0.0.0/33":         "",
		"10/8":                "",
		"fe80::%eth0/64":      "",
		"fe80::1%eth0":        "",
		"2130706433":          "",
		"":                    "",
		"10.0.0.0/8 ":         "",
		"10.0.0.0/08":         "",
		"10.0.0.0/255.0.0.0":  "",
		"*":                   "",
	} {
		got, err := ParsePrefix(in)
		if (err != nil) != (want == "") || err == nil && got.String() != want {
			t.Errorf("ParsePrefix(%q) = %v, %v, want %q", in, got, err, want)
		}
	}
}

func TestWithin(t *testing.T) {
	p := netip.MustParsePrefix
	for _, tt := range []struct {
		inner, outer string
		want         bool
	}{
		{"10.1.0.0/16", "10.0.0.0/8", true},
		{"10.0.0.0/8", "10.0.0.0/8", true},
		{"10.0.0.0/7", "10.0.0.0/8", false},
		{"11.0.0.0/16", "10.0.0.0/8", false},
		{"::/128", "0.0.0.0/0", false},
	} {
		if Within(p(tt.inner), p(tt.outer)) != tt.want {
			t.Errorf("Within(%s, %s) is not %v", tt.inner, tt.outer, tt.want)
		}
	}
}
