package tree

import (
	"go/format"
	"regexp"
	"strings"
	"testing"
)

func TestSourceIsFormatted(t *testing.T) {
	for _, s := range sources(t, ".go") {
		if strings.Contains(s.path, "testdata/") {
			continue
		}
		formatted, err := format.Source([]byte(s.data))
		if err != nil {
			t.Errorf("%s: %v", s.path, err)
		} else if string(formatted) != s.data {
			t.Errorf("%s is not as gofmt writes it", s.path)
		}
	}
}

// A banned text and why it stays out. The patterns are in pieces so that this file does not match itself.
var banned = []struct {
	pattern, reason string
}{
	{`\bTO` + `DO\b|\bFIX` + `ME\b|\bHA` + `CK\b`, "what is not done is an issue, not a comment"},
	{`/wo` + `rk/(main|shared)|/tmp/pl` + `an|/ro` + `ot/go/`, "a path of somebody's machine"},
	{`DES` + `IGN\.md|STY` + `LE\.md|PL` + `AN\.md`, "a file that readers of this repository do not have"},
	{`(?i)\b(claude|chatgpt|copilot)\b.{0,40}\bwrote\b|generated w` + `ith \[|co-auth` + `ored-by`, "who typed it is no matter of the source"},
	{`[\x{2028}\x{202E}\x{200B}]`, "an invisible or direction-changing character"},
}

func TestBannedWords(t *testing.T) {
	files := sources(t, ".go", ".md", ".sh", ".yaml", ".yml", ".sql", "Makefile", "/run", "/setup", "/vm", "/package")
	for _, b := range banned {
		re := regexp.MustCompile(b.pattern)
		for _, s := range files {
			for i, line := range strings.Split(s.data, "\n") {
				if word := re.FindString(line); word != "" {
					t.Errorf("%s:%d says %q: %s", s.path, i+1, word, b.reason)
				}
			}
		}
	}
}

// habits are calls that tests do not make.
var habits = []struct {
	pattern, reason string
}{
	{`\btime\.Sl` + `eep\(`, "a test waits for what it wants, with a deadline"},
	{`\b[tb]\.Sk` + `ip(f|Now)?\(`, "a skipped test is a failed one: what it needs is set up by make setup"},
}

func TestTestsNeitherSleepNorSkip(t *testing.T) {
	for _, h := range habits {
		re := regexp.MustCompile(h.pattern)
		for _, s := range sources(t, "_test.go") {
			if strings.Contains(s.data, `"testing/synctest"`) {
				continue // sleeping on the test's own clock takes no time
			}
			for i, line := range strings.Split(s.data, "\n") {
				if re.MatchString(line) {
					t.Errorf("%s:%d: %s: %s", s.path, i+1, strings.TrimSpace(line), h.reason)
				}
			}
		}
	}
}
