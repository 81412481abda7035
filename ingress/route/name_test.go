package route

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"portreeve.dev/policies/hostname"
)

func zone(t testing.TB, domain string) Zone {
	t.Helper()
	z, err := NewZone(domain)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestHostNamesRoundTrip(t *testing.T) {
	z := zone(t, "Tunnel.localhost.")
	rapid.Check(t, func(t *rapid.T) {
		slug := NewSlug()
		port := rapid.Uint16Min(1).Draw(t, "port")
		host, err := z.Host(slug, port)
		if err != nil {
			t.Fatal(err)
		}
		if normal, err := hostname.Normalize(strings.ToUpper(host)); err != nil || normal != host {
			t.Fatalf("%q is not in normal form: %q, %v", host, normal, err)
		}
		s, p, err := z.Parse(host)
		if err != nil || s != slug || p != port || !z.Contains(host) {
			t.Fatalf("%q is read as %q, %d, %v", host, s, p, err)
		}
	})
}

func TestOtherNamesAreNoTunnels(t *testing.T) {
	z := zone(t, "tunnel.localhost")
	const slug = "abcdefghijklmn27"
	if _, _, err := z.Parse(slug + "-3000.tunnel.localhost"); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{
		"", "tunnel.localhost", ".tunnel.localhost", slug + "-3000.other.localhost", slug + "-3000.tunnel.localhost.test", slug + "-3000xtunnel.localhost",
		slug + "-0.tunnel.localhost", slug + "-03000.tunnel.localhost", slug + "-65536.tunnel.localhost", slug + "-+1.tunnel.localhost",
		slug + "-.tunnel.localhost", slug + ".tunnel.localhost", slug + "-3000-1.tunnel.localhost", "x" + slug + "-3000.tunnel.localhost",
		"abcdefghijklmn21-3000.tunnel.localhost", slug[1:] + "-3000.tunnel.localhost", "a." + slug + "-3000.tunnel.localhost", strings.ToUpper(slug) + "-3000.tunnel.localhost",
	} {
		if s, p, err := z.Parse(host); !errors.Is(err, ErrNotATunnel) {
			t.Errorf("%q is read as %q, %d, %v", host, s, p, err)
		}
	}
	for _, wrong := range []struct {
		slug string
		port uint16
	}{{slug, 0}, {slug + "a", 1}, {"", 1}, {strings.ToUpper(slug), 1}, {"abcdefghijklmn-7", 1}} {
		if host, err := z.Host(wrong.slug, wrong.port); err == nil {
			t.Errorf("%+v is printed as %q", wrong, host)
		}
	}
}

func TestDomainLeavesRoomForNames(t *testing.T) {
	domain := strings.Repeat("a23456789.", 23) // 230
	if _, err := NewZone(domain[:229]); err != nil {
		t.Error(err)
	}
	z, err := NewZone(domain[:228] + "bc")
	if err != nil {
		t.Fatal(err)
	}
	if host, err := z.Host(NewSlug(), 65535); err != nil || len(host) > hostname.MaxLength {
		t.Errorf("the longest name has %d characters: %v", len(host), err)
	}
	if _, err := NewZone(domain[:228] + "bcd"); err == nil {
		t.Error("a domain was accepted under which not every name has room")
	}
	for _, bad := range []string{"", "127.0.0.1", "a b", "-a.test"} {
		if _, err := NewZone(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	if (Zone{}).Contains("localhost") || (Zone{}).Contains("") {
		t.Error("the zero Zone contains a name")
	}
}

func TestSpellingsOfOneHost(t *testing.T) {
	for _, s := range []string{"a-1.tunnel.localhost", "A-1.TUNNEL.localhost", "a-1.tunnel.localhost.", "a-1.tunnel.localhost:8443", "A-1.Tunnel.LocalHost.:443", "a-1.tunnel.localhost:"} {
		if host, _, err := Split(s); err != nil || host != "a-1.tunnel.localhost" {
			t.Errorf("%q is split into %q, %v", s, host, err)
		}
	}
	for _, s := range []string{
		"", ":80", "a.test:0", "a.test:080", "a.test:65536", "a.test:+80", "a.test:80:80", "u@a.test", "a.test/x", "a.test?x", "a.test#", "a.test\x00", " a.test",
		"a.test ", "[::1]", "[::1]:80", "127.0.0.1:80", "a..test", "a.test..", "a.test:80 ", "a.test:８０", "a,b.test", "a%2etest",
	} {
		if host, port, err := Split(s); err == nil {
			t.Errorf("%q is split into %q, %q", s, host, port)
		}
	}
}

func FuzzSplit(f *testing.F) {
	f.Add("A-1.Tunnel.localhost.:443")
	f.Add("b\u00fccher.de")
	f.Fuzz(func(t *testing.T, s string) {
		host, port, err := Split(s)
		if err != nil {
			return
		}
		again := host
		if port != "" {
			again += ":" + port
		}
		if h, p, err := Split(again); err != nil || h != host || p != port {
			t.Fatalf("%q gives %q, %q, which gives %q, %q, %v", s, host, port, h, p, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	z := zone(f, "tunnel.localhost")
	f.Add("abcdefghijklmn27-3000.tunnel.localhost")
	f.Fuzz(func(t *testing.T, s string) {
		slug, port, err := z.Parse(s)
		if err != nil {
			return
		}
		if host, err := z.Host(slug, port); err != nil || host != s {
			t.Fatalf("%q is printed as %q, %v", s, host, err)
		}
	})
}
