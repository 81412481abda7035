package lab

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"
)

// frame builds a frame from hex with spaces.
func frame(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

const (
	ether4 = "020000000001 020000000002 0800"
	ether6 = "020000000001 020000000002 86dd"
	toEvil = "cb007102 c6336442" // 203.0.113.2 to 198.51.100.66
	evil6  = "20010db8011300000000000000000002 20010db8006600000000000000000066"
)

func TestParseFrame(t *testing.T) {
	for name, c := range map[string]struct {
		frame string
		want  func(Packet) bool
	}{
		"a tcp opening": {ether4 + "4500 0028 0000 4000 40 06 0000" + toEvil + "c000 01bb 00000000 00000000 50 02 0000 0000 0000",
			func(p Packet) bool { return p.SYN && p.DstPort == 443 && p.Touches(evilAddr) && !p.Broken }},
		"its answer is no opening": {ether4 + "4500 0028 0000 4000 40 06 0000" + toEvil + "c000 01bb 00000000 00000000 50 12 0000 0000 0000",
			func(p Packet) bool { return !p.SYN && p.DstPort == 443 && !p.Broken }},
		"a query by udp": {ether4 + "4500 0026 0000 0000 40 11 0000" + toEvil + "c000 0035 0012 0000 04 6576696c 04 74657374",
			func(p Packet) bool { return p.Says("evil.test") && !p.Says("good.test") && p.DstPort == 53 }},
		"padding is not payload": {ether4 + "4500 001c 0000 0000 40 11 0000" + toEvil + "c000 0035 0008 0000 6576696c2e74657374",
			func(p Packet) bool { return !p.Says("evil.test") && p.DstPort == 53 }},
		"a later fragment has no ports": {ether4 + "4500 001c 0000 0001 40 11 0000" + toEvil + "c000 0035 0008 0000",
			func(p Packet) bool { return p.Fragment && p.DstPort == 0 && p.Touches(evilAddr) && !p.Broken }},
		"a cut head is broken":      {ether4 + "4500 0028", func(p Packet) bool { return p.Broken }},
		"a cut tcp head is broken":  {ether4 + "4500 0028 0000 4000 40 06 0000" + toEvil + "c000", func(p Packet) bool { return p.Broken && p.Touches(evilAddr) }},
		"udp over IPv6":             {ether6 + "60000000 0008 11 40" + evil6 + "c000 0035 0008 0000", func(p Packet) bool { return p.DstPort == 53 && p.Touches(evilAddr6) }},
		"udp after IPv6 extensions": {ether6 + "60000000 0010 00 40" + evil6 + "11 00 000000000000 c000 0035 0008 0000", func(p Packet) bool { return p.DstPort == 53 && p.Proto == protoUDP }},
		"a question for an address": {"ffffffffffff 020000000002 0806 0001 0800 06 04 0001 020000000002 cb007102 000000000000 c6336442",
			func(p Packet) bool { return p.Kind == "arp" && p.Touches(evilAddr) && !p.housekeeping() }},
		"a question for the router": {"ffffffffffff 020000000002 0806 0001 0800 06 04 0001 020000000002 cb007102 000000000000 cb007101",
			func(p Packet) bool { return p.housekeeping() }},
	} {
		if p := parseFrame(frame(c.frame)); !c.want(p) {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// FuzzParseFrame wants that no frame crashes the judge, and that an address pair that is there is read.
func FuzzParseFrame(f *testing.F) {
	f.Add(frame(ether4 + "4500 0028 0000 4000 40 06 0000" + toEvil + "c000 01bb 00000000 00000000 50 02 0000 0000 0000"))
	f.Add(frame(ether6 + "60000000 0010 00 40" + evil6 + "11 00 000000000000 c000 0035 0008 0000"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := parseFrame(b)
		if len(b) >= 34 && b[12] == 8 && b[13] == 0 && b[14] == 0x45 {
			if want := netip.AddrFrom4([4]byte(b[30:34])); p.Dst != want {
				t.Errorf("destination %v, want %v", p.Dst, want)
			}
		}
	})
}
