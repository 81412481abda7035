package bank

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A row is one bug of the bank.
type row struct {
	ID     string   `yaml:"id"`
	Source string   `yaml:"source"`
	Cause  string   `yaml:"cause"`
	Policy string   `yaml:"policy"` // a file in policies
	Paths  []string `yaml:"paths"`
	Wall   string   `yaml:"wall"`  // what refuses the deny cases, if not the policy: identity, parse, floor, ...
	Proof  []string `yaml:"proof"` // of other walls: the invariants whose proofs by removal show that they are what refuses
	Open   string   `yaml:"open"`  // why the row does not hold yet
	Plain  *ask     `yaml:"plain"` // what the deny cases are after, asked for honestly: the policy refuses it
	Deny   []kase   `yaml:"deny"`
	Allow  []kase   `yaml:"allow"`

	DenySave  []call `yaml:"deny_save"`
	AllowSave []call `yaml:"allow_save"`

	Program string   `yaml:"program"` // one of programs_test.go
	Tests   []string `yaml:"tests"`   // PACKAGE TEST: what shows it elsewhere, from outside the processes where it can be
}

// An ask is the plain form of a case.
type ask struct {
	To     string `yaml:"to"`
	Method string `yaml:"method"`
	Target string `yaml:"target"`
	Clear  bool   `yaml:"clear"`
	TCP    bool   `yaml:"tcp"` // a connection and a line, no HTTP
	Want   string `yaml:"want"`
	Reason string `yaml:"reason"`
}

// A kase is one thing that a sandbox tries. {mark} in its text becomes a word that nothing else says.
type kase struct {
	Name  string           `yaml:"name"`
	Under string           `yaml:"under"` // the policy that it is played under; default the row's
	Paths []string         `yaml:"paths"` // default the row's
	Each  []string         `yaml:"each"`  // played once for each of these, as {each}
	Do    []map[string]any `yaml:"do"`
	Wall  string           `yaml:"wall"`  // of a deny case, where it is not the row's; "policy" where the policy refuses it
	Limit int              `yaml:"limit"` // milliseconds per step
	Slow  bool             `yaml:"slow"`  // played beside the other slow ones; it says {mark}.wild.test so that its records are known

	Want    string `yaml:"want"`    // what the last step comes to, a regular expression for the whole of it
	Says    string `yaml:"says"`    // what the last answer's head or body matches
	Reason  string `yaml:"reason"`  // of the records that deny
	Records *int   `yaml:"records"` // how many deny; default 1, of an allowed case 0
	AtMost  bool   `yaml:"at_most"` // that many or fewer

	Arrives  *int     `yaml:"arrives"`  // requests that carry the mark and reach an upstream; default 0, of an allowed case 1
	Upstream []string `yaml:"upstream"` // each matches one line of what arrived: proto, method, host, uri, header, body
	Never    []string `yaml:"never"`    // none of these matches any line of it
	Wire     string   `yaml:"wire"`     // the mark is seen on its way to this host instead
	Touches  []string `yaml:"touches"`  // addresses of evil.test's kind that this case may reach
	Asked    []string `yaml:"asked"`    // names that the name server must be asked for
	Unasked  []string `yaml:"unasked"`  // names that it must not be asked for, beside evil.test and all below
	Silent   []string `yaml:"silent"`   // hosts or addresses that nothing goes to meanwhile
	Flat     int      `yaml:"flat"`     // MiB by which edge's memory may grow meanwhile
	Busy     int      `yaml:"busy"`     // milliseconds of processor time that edge may take meanwhile
}

// Two walls have no guard of ours that a proof could take away: what only a verdict of the policy refuses, which the forced
// edges take away, and what Go's own libraries refuse.
const (
	byPolicy = "policy"
	byGo     = "go"
)

// whatever is the number of records or arrivals that a case does not care about.
const whatever = -1

// A call is one to the API, for what must be refused when it is saved.
type call struct {
	Name   string `yaml:"name"`
	Method string `yaml:"method"`
	Path   string `yaml:"path"`
	Body   any    `yaml:"body"`
	Want   int    `yaml:"want"`
	Says   string `yaml:"says"`
}

const (
	transparent = "transparent"
	explicit    = "explicit"
	socks       = "socks"
	overH2      = "h2"
	bytesAlone  = "raw"
)

var paths = []string{transparent, explicit, socks, overH2, bytesAlone}

var rowID = regexp.MustCompile(`^[BX][0-9]{2,3}$`)

func loadRows() ([]*row, error) {
	files, err := filepath.Glob("rows/*.yaml")
	if err != nil {
		return nil, err
	}
	var all []*row
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r, err := readRow(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if r.ID+".yaml" != filepath.Base(file) {
			return nil, fmt.Errorf("%s holds row %s", file, r.ID)
		}
		all = append(all, r)
	}
	return all, nil
}

func readRow(data []byte) (*row, error) {
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	r := new(row)
	if err := d.Decode(r); err != nil {
		return nil, err
	}
	if err := d.Decode(new(row)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document")
	}
	return r, r.check()
}

func (r *row) check() error {
	switch {
	case !rowID.MatchString(r.ID):
		return fmt.Errorf("id %q", r.ID)
	case r.Source == "" || r.Cause == "":
		return errors.New("no source or no cause")
	case r.Program == "" && len(r.Tests) == 0 && (len(r.Deny)+len(r.DenySave) == 0 || len(r.Allow)+len(r.AllowSave) == 0):
		return errors.New("no program, and not both deny and allow")
	case len(r.Deny)+len(r.Allow) > 0 && (r.Policy == "" || len(r.Paths) == 0):
		return errors.New("cases without a policy or paths")
	}
	for _, c := range slices.Concat(r.Deny, r.Allow) {
		if c.Name == "" || len(c.Do) == 0 || c.Want == "" {
			return fmt.Errorf("case %q: name, do and want are needed", c.Name)
		}
		for _, text := range slices.Concat([]string{c.Want, c.Says, c.Reason}, c.Upstream, c.Never) {
			if _, err := regexp.Compile(text); err != nil {
				return fmt.Errorf("case %q: %w", c.Name, err)
			}
		}
		for _, p := range slices.Concat(r.Paths, c.Paths) {
			if !slices.Contains(paths, p) {
				return fmt.Errorf("case %q: path %q", c.Name, p)
			}
		}
	}
	return nil
}

// A play is a case on one path with one word of its own.
type play struct {
	row   *row
	kase  kase
	path  string
	allow bool
	plain bool
	mark  string

	start, end int64 // nanoseconds, as the sandbox says
	next       int64 // when the next one began
	steps      []said
	problems   []string
	outside    bool // one of them was seen outside: what was refused got there
}

// wall is what refuses a deny case: the policy, unless the case or its row names another one.
func (p *play) wall() string {
	switch {
	case p.plain:
		return byPolicy
	case p.kase.Wall != "":
		return p.kase.Wall
	case p.row.Wall != "":
		return p.row.Wall
	}
	return byPolicy
}

func (p *play) String() string {
	kind := "deny"
	if p.allow {
		kind = "allow"
	}
	return fmt.Sprintf("%s %s %q by %s", p.row.ID, kind, p.kase.Name, p.path)
}

// plays expands the row to what is played on the given paths.
func (r *row) plays(available []string) []*play {
	var all []*play
	add := func(c kase, allow, plain bool) {
		c.Under = cmp.Or(c.Under, r.Policy)
		if len(c.Paths) == 0 {
			c.Paths = r.Paths
		}
		for _, path := range c.Paths {
			if !slices.Contains(available, path) {
				continue
			}
			each := c.Each
			if len(each) == 0 {
				each = []string{""}
			}
			for _, value := range each {
				mark := fmt.Sprintf("mark-%s-%dz", strings.ToLower(r.ID), len(all))
				one := c
				if value != "" {
					one.Name = fmt.Sprintf("%s %q", c.Name, value)
				}
				one.Do = filled(filled(c.Do, map[string]string{"{each}": value}), map[string]string{"{mark}": mark}).([]map[string]any)
				for _, list := range []*[]string{&one.Asked, &one.Unasked, &one.Silent} {
					*list = slices.Clone(*list)
					for i := range *list {
						(*list)[i] = strings.ReplaceAll((*list)[i], "{mark}", mark)
					}
				}
				all = append(all, &play{row: r, kase: one, path: path, allow: allow, plain: plain, mark: mark})
			}
		}
	}
	if r.Plain != nil {
		add(r.Plain.kase(r.Paths), false, true)
	}
	for _, c := range r.Deny {
		add(c, false, false)
	}
	for _, c := range r.Allow {
		add(c, true, false)
	}
	return all
}

// kase is the plain form as a case that the policy refuses.
func (a *ask) kase(paths []string) kase {
	c := kase{Name: "asked for plainly", Want: a.Want, Reason: a.Reason}
	if c.Want == "" {
		c.Want = "nxdomain|403|reset|alert.*|socks 2"
	}
	if c.Reason == "" {
		c.Reason = "no_rule|rule_denied"
	}
	if a.TCP {
		c.Do = []map[string]any{{"connect": a.To}, {"send": "{mark}\n"}, {"read": "line"}}
	} else {
		target := a.Target
		if target == "" {
			target = "/{mark}"
		}
		do := map[string]any{"to": a.To, "target": target}
		if a.Method != "" {
			do["method"] = a.Method
		}
		if a.Clear {
			do["clear"] = true
		}
		c.Do = []map[string]any{{"ask": do}}
	}
	c.Paths = slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p == overH2 && (a.Clear || a.TCP) })
	if c.Paths = slices.DeleteFunc(c.Paths, func(p string) bool { return p == bytesAlone }); len(c.Paths) == 0 {
		c.Paths = []string{transparent}
	}
	return c
}

// filled replaces words in every text of a value.
func filled(v any, words map[string]string) any {
	switch v := v.(type) {
	case string:
		for from, to := range words {
			v = strings.ReplaceAll(v, from, to)
		}
		return v
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = filled(v[i], words)
		}
		return out
	case []map[string]any:
		out := make([]map[string]any, len(v))
		for i := range v {
			out[i] = filled(v[i], words).(map[string]any)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[key] = filled(v[key], words)
		}
		return out
	}
	return v
}
