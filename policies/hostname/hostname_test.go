package hostname

import (
	"errors"
	"strings"
	"testing"
)

func TestOneNameOneForm(t *testing.T) {
	long := strings.Repeat("a", 63)
	tests := map[string][]string{
		"good.test":         {"good.test", "GOOD.test", "Good.Test.", "good.test.", "ⓖood.test", "ｇｏｏｄ.test", "good。test", "good．test｡", "go\u00adod.test"},
		"xn--bcher-kva.de":  {"bücher.de", "BÜCHER.de", "xn--bcher-kva.de", "XN--BCHER-KVA.DE", "bu\u0308cher.de"},
		"xn--strae-oqa.de":  {"straße.de"}, // not strasse.de: those are two names
		"strasse.de":        {"strasse.de"},
		"a_b.s3.test":       {"a_b.s3.test", "A_B.s3.test"},
		"_sip._tcp.test":    {"_sip._tcp.test"},
		"r3---sn-a.test":    {"r3---sn-a.test"},
		"localhost":         {"localhost", "LOCALHOST."},
		"1.2.3.4.test":      {"1.2.3.4.test"},
		"127.0.0.1.nip.io":  {"127.0.0.1.nip.io"},
		"0x7f.test":         {"0x7f.test"},
		"0xyz":              {"0xyz"},
		long + ".test":      {long + ".test"},
		"k.test":            {"K.test", "\u212a.test"}, // the Kelvin sign
		"xn--fsqu00a.test":  {"例子.test"},
		"a.b.c.d.e.f.g.h.i": {"a.b.c.d.e.f.g.h.i"},
	}
	for want, spellings := range tests {
		for _, s := range spellings {
			if got, err := Normalize(s); got != want || err != nil {
				t.Errorf("Normalize(%q) = %q, %v, want %q", s, got, err, want)
			}
		}
	}
}

func TestAddressesAreNotNames(t *testing.T) {
	for _, s := range []string{
		"127.0.0.1", "127.0.0.1.", "2130706433", "0x7f000001", "0X7F000001", "0177.0.0.1", "127.1", "0", "0x", "0x7f.1",
		"[::1]", "::1", "::ffff:169.254.169.254", "[::ffff:127.0.0.1]", "::127.0.0.1", "fe80::1%eth0",
		"１２７.0.0.1", "①②⑦.0.0.1", "127。0。0。1", "a.b.1", "good.0x1f", "256.256.256.256", "1.2.3.4.5", "[evil.test]", "0.0.0.0x",
	} {
		if got, err := Normalize(s); !errors.Is(err, ErrAddress) {
			t.Errorf("Normalize(%q) = %q, %v, want ErrAddress", s, got, err)
		}
	}
}

func TestMoreThanANameIsRefused(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, s := range []string{
		"", ".", "..", "good.test..", ".wild.test", "a..b", "evil.test\x00.good.test", "evil.test%00.good.test", "good%2etest",
		"good.test:443", "good.test:", "good.test:443@evil.test", "user@good.test", "user:pw@good.test", "good.test/", "good.test?x", "good.test#x",
		`good.test\evil`, " good.test", "good.test ", "good test", "good\ttest", "good.test\r\nHost: evil.test", "*.good.test", "*",
		"-a.test", "a-.test", "a.-", "xn--a.test", "xn--.test", "xn--good-.test", "xn--zzzzzzz99999.test", "\xff.test", "good\u2024.test\x7f",
		long + ".test", strings.Repeat("abcdefg.", 32) + "test", strings.Repeat("x", 5000), "a\u200db.test", "ⓖood.test:443", "good.test／x", "good\uff20evil.test",
		"a,b.test", "a;b.test", "a'b.test", "$a.test", "http://good.test", "xn--ls8h=.test", "a\u202eb.test",
	} {
		if got, err := Normalize(s); !errors.Is(err, ErrInvalid) {
			t.Errorf("Normalize(%q) = %q, %v, want ErrInvalid", s, got, err)
		}
	}
}

func TestNormalAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Normalize("api.eu-west-1.example.com") }); n != 0 {
		t.Errorf("%v allocations for a name that is normal already", n)
	}
}

func TestSuffixSections(t *testing.T) {
	for host, want := range map[string]Section{
		"com": ICANN, "co.uk": ICANN, "ck": ICANN, "foo.ck": ICANN, "xn--p1ai": ICANN, "kawasaki.jp": ICANN, "zip": ICANN,
		"github.io": Private, "s3.amazonaws.com": Private, "herokuapp.com": Private,
		"test": Unlisted, "corp": Unlisted, "localhost": Unlisted,
		"example.com": NotSuffix, "www.ck": NotSuffix, "good.test": NotSuffix, "me.github.io": NotSuffix, "github.com": NotSuffix, "amazonaws.com": NotSuffix,
	} {
		if got := SuffixSection(host); got != want {
			t.Errorf("SuffixSection(%q) = %d, want %d", host, got, want)
		}
		if IsPublicSuffix(host) != (want == ICANN) {
			t.Errorf("IsPublicSuffix(%q) is %v", host, !(want == ICANN))
		}
	}
}

func FuzzNormalize(f *testing.F) {
	for _, s := range []string{"good.test", "BÜCHER.de.", "xn--bcher-kva.de", "127.1", "[::1]", "a@b", "ⓖood.test", "good。test", "a\x00b", "*.x", "xn--a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		name, err := Normalize(s)
		if err != nil {
			if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrAddress) {
				t.Fatalf("Normalize(%q): %v is of no kind", s, err)
			}
			return
		}
		if !Normal(name) {
			t.Fatalf("Normalize(%q) = %q has not the normal shape", s, name)
		}
		for _, again := range []string{name, name + ".", strings.ToUpper(name)} {
			if got, err := Normalize(again); got != name || err != nil {
				t.Fatalf("Normalize(%q) = %q, but %q gives %q, %v", s, name, again, got, err)
			}
		}
	})
}

// The resolver and the proxy normalize every name they see; nearly all of them are normal already.
func BenchmarkNormalize(b *testing.B) {
	for b.Loop() {
		Normalize("api.eu-west-1.example.com")
	}
}
