package policies

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"
)

// Each constant has a sentence, and each sentence a constant.
func TestReasonsAreAClosedList(t *testing.T) {
	source, err := os.ReadFile("reason.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^\tReason\w+\s+Reason = "([a-z0-9_]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(declared) < 20 || len(declared) != len(Reasons()) {
		t.Errorf("%d declared, %d with guidance", len(declared), len(Reasons()))
	}
	for _, m := range declared {
		r := Reason(m[1])
		if !r.Valid() || r.String() != m[1] {
			t.Errorf("%q has no guidance", r)
		}
		if g := r.Guidance(); !strings.HasSuffix(g, ".") || strings.Contains(g, ". ") || len(g) < 20 {
			t.Errorf("%q: %q is not one sentence", r, g)
		}
	}
	if Reason("other").Valid() || Reason("").Valid() || Reason("other").Guidance() != "" {
		t.Error("a reason that is not on the list is valid")
	}
}

func TestWordsReadBack(t *testing.T) {
	v := Verdict{Action: Allow, Reason: ReasonAllowed, Protocols: HTTPS | SSH, TLS: Inspect, Foreign: ForeignStrip, DNS: DNSReal, Log: LogCount}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var again Verdict
	if err := json.Unmarshal(text, &again); err != nil || again != v {
		t.Errorf("%s reads as %+v, %v", text, again, err)
	}
	for _, bad := range []string{`{"action": "permit"}`, `{"protocols": ["quic"]}`, `{"tls": ""}`, `{"protocols": "https"}`} {
		if err := json.Unmarshal([]byte(bad), &again); err == nil {
			t.Errorf("%s: accepted", bad)
		}
	}
	if _, err := json.Marshal(Verdict{Action: 9}); err == nil {
		t.Error("an unknown action was written")
	}
	if (HTTPS|TCP).String() != "https+tcp" || Protocol(0).Has(0) || !AllProtocols.Has(SSH|TLS) || HTTPS.Has(HTTPS|HTTP) {
		t.Error("protocols")
	}
}
