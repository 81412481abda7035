// Command summary reads what "go test -json" prints and tells a person what came of it: go test's own line for each
// package, what the failed tests said, and a last line with the sums. A skipped test counts as failed, because what a test
// needs is set up before; so does a package that did not build, and an input without any test.
//
//	go test -json ./... | go run ./.build/summary [-v]
//
// With -v each test that passed has its line too.
//
// Exit status: 0 when everything passed, 1 otherwise.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	verbose := flag.Bool("v", false, "a line for each test that passed")
	flag.Parse()
	if !summarize(os.Stdin, os.Stdout, *verbose) {
		os.Exit(1)
	}
}

// An event is one line of go test -json, or of go build -json between them.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
}

type key struct{ pkg, test string }

type sums struct {
	out            io.Writer
	verbose        bool
	said           map[key]*strings.Builder
	passed, failed int
	ran            map[string]int // tests of a package
}

func summarize(in io.Reader, out io.Writer, verbose bool) bool {
	s := &sums{out: out, verbose: verbose, said: map[key]*strings.Builder{}, ran: map[string]int{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(out, lines.Text()) // a tool's own words
			continue
		}
		s.take(e)
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(out, "reading the tests' output:", err)
		s.failed++
	}
	fmt.Fprintf(out, "\n%d passed, %d failed\n", s.passed, s.failed)
	return s.failed == 0 && s.passed > 0
}

func (s *sums) take(e event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "output":
		if s.said[k] == nil {
			s.said[k] = new(strings.Builder)
		}
		s.said[k].WriteString(e.Output)
	case "build-output":
		fmt.Fprint(s.out, e.Output)
	case "pass", "fail", "skip":
		s.end(e, k)
	}
}

func (s *sums) end(e event, k key) {
	said := ""
	if b := s.said[k]; b != nil {
		said = b.String()
	}
	delete(s.said, k)
	switch {
	case e.Test != "" && e.Action == "pass":
		s.ran[e.Package]++
		s.passed++
		if s.verbose {
			s.lines(said, "--- PASS")
		}
	case e.Test != "":
		s.ran[e.Package]++
		s.failed++
		word := "FAIL"
		if e.Action == "skip" {
			word = "SKIP"
		}
		fmt.Fprintf(s.out, "%s %s %s\n%s", word, e.Package, e.Test, said)
	case e.Action == "fail":
		if s.ran[e.Package] == 0 {
			s.failed++ // it did not build, or ended before its first test
		}
		fmt.Fprintf(s.out, "FAIL %s (%.1f s)\n%s", e.Package, e.Elapsed, said)
	case s.ran[e.Package] > 0:
		s.lines(said, "PASS", "ok")
	}
}

// lines passes on those lines of go test that begin with one of the words.
func (s *sums) lines(said string, words ...string) {
	for line := range strings.Lines(said) {
		for _, w := range words {
			if strings.HasPrefix(line, w) {
				fmt.Fprint(s.out, line)
			}
		}
	}
}
