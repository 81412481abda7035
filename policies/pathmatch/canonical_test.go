package pathmatch

import (
	"errors"
	"strings"
	"testing"
)

func TestCanonicalOrRefused(t *testing.T) {
	tests := []struct{ name, raw, want string }{
		{"plain", "/v1/users", "/v1/users"},
		{"root", "/", "/"},
		{"slash at the end", "/v1/", "/v1/"},
		{"sub-delimiters", "/a!$&'()*+,=:@b", "/a!$&'()*+,=:@b"},
		{"hidden file", "/.well-known/x", "/.well-known/x"},
		{"three dots", "/.../x", "/.../x"},
		{"unreserved escape", "/%7euser/%41%2dz", "/~user/A-z"},
		{"lower-case escape", "/a%3ab", "/a%3Ab"},
		{"escaped plus stays apart from plus", "/a%2bb+c", "/a%2Bb+c"},
		{"space", "/a b", "/a%20b"},
		{"what a segment can't hold", "/{a}|<b>^`\"[c]", "/%7Ba%7D%7C%3Cb%3E%5E%60%22%5Bc%5D"},
		{"raw UTF-8", "/é", "/%C3%A9"},
		{"escaped UTF-8", "/%c3%a9", "/%C3%A9"},
		{"escaped query mark", "/a%3fb%23c", "/a%3Fb%23c"},
		{"escaped percent", "/100%25", "/100%25"},
		{"escaped slash", "/@scope%2fname", "/@scope%2Fname"},
		{"escaped slash at the end", "/a%2F", "/a%2F"},

		{"dot segment", "/v1/./admin", "/v1/admin"},
		{"two dots", "/v1/../admin", "/admin"},
		{"escaped dots", "/v1/%2e%2E/admin", "/admin"},
		{"half escaped dots", "/v1/.%2e/admin", "/admin"},
		{"dots at the end", "/v1/x/..", "/v1/"},
		{"dot at the end", "/v1/.", "/v1/"},
		{"dots back to the root", "/v1/..", "/"},

		{"above the root", "/../admin", ""},
		{"further above the root", "/a/../../admin", ""},
		{"escaped, above the root", "/%2e%2e/admin", ""},
		{"empty segment", "/v1//admin", ""},
		{"empty first segment", "//evil.test/x", ""},
		{"empty last segment", "/v1//", ""},
		{"dots into an empty segment", "/a//../b", ""},
		{"parameter", "/admin;x=1", ""},
		{"escaped parameter", "/admin%3bx", ""},
		{"dots with a parameter", "/v1/..;/admin", ""},
		{"backslash", `/v1\..\admin`, ""},
		{"escaped backslash", "/v1%5c..%5cadmin", ""},
		{"double-encoded dot", "/v1/%252e%252e/admin", ""},
		{"double-encoded slash", "/v1%252fadmin", ""},
		{"double-encoded in pieces", "/v1/%25%32%65", ""},
		{"double-encoded by raw digits", "/v1/%252%65", ""},
		{"dots beside an escaped slash", "/v1/a%2f..%2fadmin", ""},
		{"dots between slash and escaped slash", "/v1/..%2fadmin", ""},
		{"dot beside an escaped slash", "/v1/a%2f.", ""},
		{"escaped slash after a slash", "/%2fadmin", ""},
		{"escaped slash before a slash", "/a%2f/b", ""},
		{"two escaped slashes", "/a%2f%2fb", ""},
		{"NUL", "/a%00b", ""},
		{"newline", "/a%0ab", ""},
		{"raw newline", "/a\nb", ""},
		{"delete", "/a%7f", ""},
		{"broken escape", "/a%2", ""},
		{"broken escape at the end", "/a%", ""},
		{"escape without digits", "/a%zz", ""},
		{"escape whose first digit is none", "/a%z1%80%80%80", ""}, // as a digit of -1 it would make UTF-8
		{"escape whose second digit is none", "/a%4zb", ""},
		{"overlong slash", "/a%c0%afb", ""},
		{"Latin-1", "/caf%e9", ""},
		{"raw bytes", "/\xff", ""},
		{"raw half with an escaped half", "/\xc3%a9", ""},
		{"query", "/a?b", ""},
		{"fragment", "/a#b", ""},
		{"no slash first", "a/b", ""},
		{"absolute form", "http://good.test/", ""},
		{"star form", "*", ""},
		{"nothing", "", ""},
		{"too long", "/" + strings.Repeat("a", MaxLength), ""},
		{"longest", "/" + strings.Repeat("a", MaxLength-1), "/" + strings.Repeat("a", MaxLength-1)},
		{"too long once escaped", "/" + strings.Repeat(" ", MaxLength/2), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Canonical(tt.raw)
			if got != tt.want || (err != nil) != (tt.want == "") || err != nil && !errors.Is(err, ErrAmbiguous) {
				t.Errorf("Canonical(%q) = %q, %v, want %q", tt.raw, got, err, tt.want)
			}
		})
	}
}

func TestCanonicalOfPlainAllocatesNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { Canonical("/repos/owner/name/pulls/17") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzCanonical(f *testing.F) {
	for _, s := range []string{"/v1/../admin", "/%2e%2e", "/a%2fb", "/a//b", "/a;x=1", `/a\b`, "/%252e", "/%25%32%65", "/é", "/.", "/a%2F", "*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		path, err := Canonical(raw)
		if err != nil {
			if !errors.Is(err, ErrAmbiguous) {
				t.Fatalf("Canonical(%q): %v", raw, err)
			}
			return
		}
		if again, err := Canonical(path); again != path || err != nil {
			t.Fatalf("Canonical(%q) = %q, of which it makes %q, %v", raw, path, again, err)
		}
		// However often a server decodes, it must meet none of these.
		for reading := path; ; {
			if strings.ContainsAny(reading, "\\;\x00\r\n") || strings.Contains(reading, "//") || reading[0] != '/' {
				t.Fatalf("Canonical(%q) = %q reads as %q", raw, path, reading)
			}
			for _, segment := range strings.Split(reading, "/") {
				if segment == "." || segment == ".." {
					t.Fatalf("Canonical(%q) = %q reads as %q", raw, path, reading)
				}
			}
			next := decodeLoosely(reading)
			if next == reading {
				break
			}
			reading = next
		}
	})
}

func decodeLoosely(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && unhex(s[i+1]) >= 0 && unhex(s[i+2]) >= 0 {
			out.WriteByte(byte(unhex(s[i+1])<<4 | unhex(s[i+2])))
			i += 2
			continue
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// Each opened request pays for this.
func BenchmarkCanonical(b *testing.B) {
	for b.Loop() {
		Canonical("/repos/owner/name/pulls/17")
	}
}
