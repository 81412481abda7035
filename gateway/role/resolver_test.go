package role

import "testing"

func TestResolverHasOneForm(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.53":                      "192.0.2.53:53",
		"192.0.2.53:5353":                 "192.0.2.53:5353",
		"2001:db8::53":                    "[2001:db8::53]:53",
		"tls://192.0.2.53":                "tls://192.0.2.53:853#192.0.2.53",
		"tls://192.0.2.53#dns.example":    "tls://192.0.2.53:853#dns.example",
		"tls://[2001:db8::53]:443#d.test": "tls://[2001:db8::53]:443#d.test",
		"dns.example":                     "", "tls://dns.example": "", "192.0.2.53:0": "", "192.0.2.53#name": "", "tls://192.0.2.53#": "", "https://192.0.2.53": "", "": "",
	} {
		r, err := ParseResolver(text)
		if want == "" {
			if err == nil {
				t.Errorf("%q is read as %v", text, r)
			}
			continue
		}
		again, err2 := ParseResolver(want)
		if err != nil || err2 != nil || r.String() != want || again != r {
			t.Errorf("%q: %v, %v, %v", text, r, err, err2)
		}
	}
}
