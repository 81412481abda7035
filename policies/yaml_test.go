package policies

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"pgregory.net/rapid"
)

// Each file of testdata/edits holds a document (before), what it is to mean (want), and the text that comes of it (after).
// A file with the comment "rewritten" is one that small changes can't do.
func TestEditYAML(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "edits", "*.txtar"))
	if err != nil || len(files) < 10 {
		t.Fatal("edits are missing", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil || len(archive.Files) < 2 {
				t.Fatal(err)
			}
			before, want := archive.Files[0].Data, parse(t, string(archive.Files[1].Data))
			got, err := EditYAML(before, want)
			if err != nil {
				t.Fatal(err)
			}
			from, origins, err := parseAt(before, testNow)
			if err != nil {
				t.Fatal(err)
			}
			small, ok := editYAML(before, from, origins, want)
			ok = ok && means(small, want)
			if rewritten := strings.Contains(string(archive.Comment), "rewritten"); ok == rewritten {
				t.Errorf("rewritten: %v\n%s", !ok, small)
			}
			if *update {
				archive.Files = append(archive.Files[:2:2], txtar.File{Name: "after", Data: got})
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if after := string(archive.Files[2].Data); string(got) != after {
				t.Errorf("got\n%s\nwant\n%s", got, after)
			}
			if again, err := EditYAML(got, want); err != nil || string(again) != string(got) {
				t.Errorf("edited again: %v\n%s", err, again)
			}
		})
	}
}

// A text that can't be read any more is no reason to refuse a change: it is written anew.
func TestEditYAMLOfWhatCannotBeRead(t *testing.T) {
	to := parse(t, `{"rules": [{"id": "a", "action": "deny", "hosts": ["a.test"]}]}`)
	for text, head := range map[string]string{
		"# Ours.\nmode: allowed_domains\nenforcement: log_only\n": "# Ours.\n", // the end of log_only was the hour in which it was read
		"# Ours.\n\npresets: [forgotten]\n":                       "# Ours.\n\n",
		"rules: [":                                                "",
		"":                                                        "",
		"# \xff\nrules: []\n":                                     "",
		"# no end":                                                "# no end\n",
		"rules: []\n---\nrules: []":                               "",
	} {
		got, err := EditYAML([]byte(text), to)
		if err != nil || !means(got, to) || !strings.HasPrefix(string(got), head+"rules:") {
			t.Errorf("%q: %v\n%s", text, err, got)
		}
	}
	if got, err := EditYAML([]byte(`{"rules": `), to); err != nil || !means(got, to) || got[0] != '{' {
		t.Errorf("%v\n%s", err, got)
	}
	if _, err := EditYAML([]byte("rules: []"), &Document{Rules: []Rule{{ID: "a"}}}); err == nil {
		t.Error("a document that the language refuses is written")
	}
}

// Whatever is changed, the text means it afterwards.
func TestEditYAMLMeansWhatIsAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, to := drawDocument(t), drawDocument(t)
		if rapid.Bool().Draw(t, "tests") {
			from.Tests, to.Tests = drawTests(t), drawTests(t)
		}
		text, err := FormatYAML(from)
		if err != nil {
			t.Fatal(err)
		}
		text = decorate(t, text)
		if _, err := Parse(text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		got, err := EditYAML(text, to)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if !means(got, to) {
			t.Fatalf("means something else:\n%s", got)
		}
		old, origins, _ := parseAt(text, testNow)
		if small, ok := editYAML(text, old, origins, to); !Diff(old, to).Empty() && (!ok || !means(small, to)) {
			t.Fatalf("not by small changes:\n%s\nto\n%s", text, small)
		}
		for _, r := range to.Rules {
			for _, before := range from.Rules {
				if before.ID == r.ID && !strings.Contains(string(got), "# above "+r.ID+"\n") && strings.Contains(string(text), "# above "+r.ID+"\n") {
					t.Fatalf("the comment above %s is lost:\n%s\nto\n%s", r.ID, text, got)
				}
			}
		}
	})
}

func drawTests(t *rapid.T) (tests []Test) {
	for _, host := range rapid.SliceOfNDistinct(rapid.SampledFrom(worldHosts), 0, 3, rapid.ID[string]).Draw(t, "tests") {
		one := Test{Name: "about " + host, Host: host, Expect: pick(t, "expect", []Action{Deny, Allow}), Port: 443, Protocol: HTTPS}
		if rapid.Bool().Draw(t, "inside") {
			one.Method, one.Path = "GET", pick(t, "path", []string{"/a", "/b"})
		}
		tests = append(tests, one)
	}
	return tests
}

// decorate puts comments and empty lines between the lines of a document.
func decorate(t *rapid.T, text []byte) []byte {
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		indent := line[:indentOf(line)]
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "- id: "); ok {
			if rapid.Bool().Draw(t, "blank") {
				out.WriteString("\n")
			}
			if rapid.Bool().Draw(t, "above") {
				out.WriteString(indent + "# above " + id + "\n")
			}
		} else if rapid.IntRange(0, 4).Draw(t, "comment") == 0 {
			out.WriteString(indent + "# a comment\n")
		}
		if rapid.IntRange(0, 4).Draw(t, "behind") == 0 {
			line = strings.TrimSuffix(line, "\n") + " # behind\n"
		}
		out.WriteString(line)
	}
	if rapid.Bool().Draw(t, "end") {
		out.WriteString("# the end\n")
	}
	return []byte(out.String())
}

func FuzzEditYAML(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join("testdata", "edits", "*.txtar"))
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(archive.Files[0].Data, uint8(1), uint8(0))
		f.Add(archive.Files[0].Data, uint8(0), uint8(1))
		f.Add(archive.Files[0].Data, uint8(0), uint8(2))
	}
	f.Fuzz(func(t *testing.T, text []byte, at, what uint8) {
		d, err := Parse(text)
		if err != nil {
			d = &Document{}
		}
		to := *d
		to.Rules = slices.Clone(d.Rules)
		switch n := len(to.Rules); {
		case what%3 == 0 || n == 0:
			to.Rules = append(to.Rules, Rule{ID: "fuzz-new", Action: Deny, Hosts: []string{"new.test"}})
		case what%3 == 1:
			to.Rules = slices.Delete(to.Rules, int(at)%n, int(at)%n+1)
		default:
			to.Rules[int(at)%n].Disabled = !to.Rules[int(at)%n].Disabled
		}
		if _, err := to.Normal(); err != nil {
			return // one rule too many
		}
		got, err := EditYAML(text, &to)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		normal, _ := to.Normal()
		if !means(got, normal) {
			t.Fatalf("%s\nbecame\n%s", text, got)
		}
	})
}
