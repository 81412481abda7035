package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInitStaysSmall: init and its protocol are standard library only, in at most 1,500 lines that aren't blank or comment.
func TestInitStaysSmall(t *testing.T) {
	const most = 1500
	lines := 0
	for _, pattern := range []string{"*.go", "../../nodes/guest/frame/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			source, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(source)) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
					lines++
				}
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range parsed.Imports {
				path := strings.Trim(spec.Path.Value, `"`)
				if strings.Contains(path, ".") && path != "portreeve.dev/nodes/guest/frame" {
					t.Errorf("%s imports %s", name, path)
				}
			}
		}
	}
	if lines > most {
		t.Errorf("%d lines, at most %d", lines, most)
	}
}
