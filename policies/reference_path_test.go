package policies

import (
	"net/netip"
	"strings"
	"testing"

	"portreeve.dev/policies/pathmatch"

	"pgregory.net/rapid"
)

// refPaths compares a canonical path with a pattern as one would by hand: a list of segments, each a list of characters. It
// shares nothing with pathmatch. An encoded slash is read both as a character and as a slash; to allow, the two have to agree.
func refPaths(pattern, path string, deny bool) bool {
	asChar := refSegments(refSplit(pattern, false), refSplit(path, false))
	asSlash := refSegments(refSplit(pattern, true), refSplit(path, true))
	if !strings.Contains(path, "%2F") {
		return asChar
	}
	if deny {
		return asChar || asSlash
	}
	return asChar && asSlash
}

func refSplit(text string, slash bool) []string {
	if slash {
		text = strings.ReplaceAll(text, "%2F", "/")
	}
	text = strings.TrimSuffix(strings.TrimPrefix(text, "/"), "/")
	if text == "" {
		return nil
	}
	return strings.Split(text, "/")
}

func refSegments(pattern, path []string) bool {
	if len(pattern) == 1 && pattern[0] == "**" {
		return true
	}
	if len(pattern) == 0 || len(path) == 0 {
		return len(pattern) == len(path)
	}
	if pattern[0] == "*" {
		return path[0] != "" && refSegments(pattern[1:], path[1:])
	}
	return refChars(refDecode(pattern[0], true), refDecode(path[0], false)) && refSegments(pattern[1:], path[1:])
}

// refDecode lists characters; -1 is a star that stands for others.
func refDecode(segment string, pattern bool) (all []int) {
	for i := 0; i < len(segment); i++ {
		switch c := segment[i]; {
		case c == '%':
			n := strings.IndexByte("0123456789ABCDEF", segment[i+1])*16 + strings.IndexByte("0123456789ABCDEF", segment[i+2])
			all = append(all, n)
			i += 2
		case c == '*' && pattern:
			all = append(all, -1)
		default:
			all = append(all, int(c))
		}
	}
	return all
}

func refChars(pattern, path []int) bool {
	if len(pattern) == 0 {
		return len(path) == 0
	}
	if pattern[0] == -1 {
		for n := range len(path) + 1 {
			if refChars(pattern[1:], path[n:]) {
				return true
			}
		}
		return false
	}
	return len(path) > 0 && pattern[0] == path[0] && refChars(pattern[1:], path[1:])
}

func TestPathsEqualReference(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "b", "ab", "*", "%2A", "%2F", "%20", "%C3%A9", "~", "@", "%40"})
	text := func(t *rapid.T, label string) string {
		var b strings.Builder
		for range rapid.IntRange(0, 4).Draw(t, label) {
			b.WriteString("/")
			for range rapid.IntRange(1, 3).Draw(t, label) {
				b.WriteString(piece.Draw(t, label))
			}
		}
		return b.String() + rapid.SampledFrom([]string{"", "/", "/**"}).Draw(t, label)
	}
	rapid.Check(t, func(t *rapid.T) {
		path, err := pathmatch.Canonical(text(t, "path"))
		if err != nil {
			return
		}
		p, err := pathmatch.Compile(text(t, "pattern"))
		if err != nil {
			return
		}
		for _, deny := range []bool{false, true} {
			got := p.MatchAll(path)
			if deny {
				got = p.MatchAny(path)
			}
			if want := refPaths(p.String(), path, deny); got != want {
				t.Fatalf("pattern %s, path %s, deny %v: %v, want %v", p, path, deny, got, want)
			}
		}
	})
}

// refAddrs lists the addresses that a rule for ranges looks at, from the bits as the RFCs draw them.
func refAddrs(a netip.Addr, deny bool) []netip.Addr {
	b := a.As16()
	four := func(i0, i1, i2, i3 int, flip byte) netip.Addr {
		return netip.AddrFrom4([4]byte{b[i0] ^ flip, b[i1] ^ flip, b[i2] ^ flip, b[i3] ^ flip})
	}
	starts := func(bytes ...byte) bool {
		for i, c := range bytes {
			if b[i] != c {
				return false
			}
		}
		return true
	}
	last := four(12, 13, 14, 15, 0)
	zeros := make([]byte, 10)
	if a.Is4() || starts(append(zeros, 0xff, 0xff)...) {
		return []netip.Addr{last}
	}
	all := []netip.Addr{netip.AddrFrom16(b)}
	switch {
	case !deny:
	case starts(0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0), starts(append(zeros, 0, 0)...):
		all = append(all, last)
	case starts(0, 0x64, 0xff, 0x9b, 0, 1):
		all = append(all, four(6, 7, 9, 10, 0), four(9, 10, 11, 12, 0), last)
	case starts(0x20, 0x02):
		all = append(all, four(2, 3, 4, 5, 0))
	case starts(0x20, 0x01, 0, 0):
		all = append(all, four(4, 5, 6, 7, 0), four(12, 13, 14, 15, 0xff))
	}
	return all
}

// refHolds compares an address with a range bit by bit.
func refHolds(p netip.Prefix, a netip.Addr) bool {
	if p.Addr().Is4() != a.Is4() {
		return false
	}
	x, y := p.Addr().AsSlice(), a.AsSlice()
	for i := range p.Bits() {
		if (x[i/8]^y[i/8])>>(7-i%8)&1 != 0 {
			return false
		}
	}
	return true
}
