package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/tools/txtar"
)

// A proof is one txtar file: what is weakened, and which test must notice.
type proof struct {
	file      string // relative to the root, for messages
	folder    string // of the guarded package, relative to the root
	invariant string
	design    string // numbers of the design's invariants, "" when it stands for none of them
	pkg       string // folder of the test, relative to the root
	test      string
	edits     []edit
}

// An edit replaces one text of one file; the text occurs there exactly once.
type edit struct {
	path     string // relative to the root
	weakened []byte // the whole file after the replacement
}

var (
	headerKeys = regexp.MustCompile(`\b(invariant|design|test):`)
	idForm     = regexp.MustCompile(`^[A-Z]{2,4}-[0-9]+$`)
	anyID      = regexp.MustCompile(`\b[A-Z]{2,4}-[0-9]+\b`)
	testForm   = regexp.MustCompile(`^\./([A-Za-z0-9_./-]+)\s+((?:Test|Fuzz)[A-Za-z0-9_]+)$`)
	designForm = regexp.MustCompile(`^[0-9]+(\s*,\s*[0-9]+)*$`)
)

// readProof reads a proof and applies its edits in memory. A text that does not occur exactly once is an error:
// the proof would then weaken something else, or nothing.
func readProof(root, file string) (*proof, error) {
	data, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		return nil, err
	}
	p := &proof{file: file, folder: filepath.Dir(filepath.Dir(filepath.Dir(file)))}
	archive := txtar.Parse(data)
	if err := p.readHeader(string(archive.Comment)); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	base := strings.TrimSuffix(filepath.Base(file), ".txtar")
	if base != p.invariant && !strings.HasPrefix(base, p.invariant+"-") {
		return nil, fmt.Errorf("%s: proves %q, so its name should begin with that", file, p.invariant)
	}
	if err := p.readEdits(root, archive.Files); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

func (p *proof) readHeader(comment string) error {
	fields := map[string]string{}
	marks := headerKeys.FindAllStringSubmatchIndex(comment, -1)
	if len(marks) == 0 || strings.TrimSpace(comment[:marks[0][0]]) != "" {
		return errors.New("the head must begin with one of the keys invariant, design and test")
	}
	for i, m := range marks {
		end := len(comment)
		if i+1 < len(marks) {
			end = marks[i+1][0]
		}
		key := comment[m[2]:m[3]]
		if _, twice := fields[key]; twice {
			return fmt.Errorf("%s: is given twice", key)
		}
		fields[key] = strings.TrimSpace(comment[m[1]:end])
	}
	p.invariant, p.design = fields["invariant"], fields["design"]
	if !idForm.MatchString(p.invariant) {
		return fmt.Errorf("invariant: %q is not like EG-1", p.invariant)
	}
	if p.design != "" && !designForm.MatchString(p.design) {
		return fmt.Errorf("design: %q is not a list of numbers", p.design)
	}
	test := testForm.FindStringSubmatch(fields["test"])
	if test == nil {
		return fmt.Errorf("test: %q is not like ./egress/dial TestName", fields["test"])
	}
	p.pkg, p.test = filepath.Clean(test[1]), test[2]
	return nil
}

func (p *proof) readEdits(root string, files []txtar.File) error {
	if len(files) == 0 || len(files)%2 != 0 {
		return fmt.Errorf("wants pairs of sections, FILE: now and FILE: weakened")
	}
	sources := map[string][]byte{}
	var order []string
	for i := 0; i < len(files); i += 2 {
		name, ok := strings.CutSuffix(files[i].Name, ": now")
		if !ok || files[i+1].Name != name+": weakened" {
			return fmt.Errorf("sections %q and %q are no pair of now and weakened", files[i].Name, files[i+1].Name)
		}
		if !filepath.IsLocal(name) || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return fmt.Errorf("%q is not a Go file of this package that is no test", name)
		}
		path := filepath.Join(p.folder, name)
		if _, seen := sources[path]; !seen {
			source, err := os.ReadFile(filepath.Join(root, path))
			if err != nil {
				return err
			}
			sources[path] = source
			order = append(order, path)
		}
		weakened, err := replaceOnce(sources[path], trim(files[i].Data), trim(files[i+1].Data))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		sources[path] = weakened
	}
	for _, path := range order {
		p.edits = append(p.edits, edit{path, sources[path]})
	}
	return nil
}

// trim drops the line ends around a section: they belong to the txtar form, not to the text.
func trim(section []byte) []byte { return bytes.Trim(section, "\n") }

func replaceOnce(source, now, weakened []byte) ([]byte, error) {
	if len(now) == 0 {
		return nil, fmt.Errorf("the text to replace is empty")
	}
	if bytes.Equal(now, weakened) {
		return nil, fmt.Errorf("the weakened text is the same as now")
	}
	if n := bytes.Count(source, now); n != 1 {
		return nil, fmt.Errorf("the text to replace occurs %d times, not once:\n%s", n, now)
	}
	return bytes.Replace(source, now, weakened, 1), nil
}
