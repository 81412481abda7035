package policies

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// FormatYAML writes the document as YAML, as its normal form.
func FormatYAML(d *Document) ([]byte, error) { return encodeYAML(d) }

func encodeYAML(v any) ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	err := e.Close()
	return out.Bytes(), err
}

// EditYAML returns the text of a document, changed so that it means what to does. What doesn't change stays as its author wrote
// it, byte for byte: comments, order, spelling, presets and git rules. A changed rule keeps its place and its comments; a new
// one comes last; a removed one goes with the comment directly above it. A preset or a git rule of which a part changes is
// written out. Text that begins with a brace is JSON, which has no comments, and is written anew.
//
// What is returned has been read again, and means exactly what was asked for. Where that can't be done by small changes (the rules in
// one line of braces, the known form, a text that can't be read any more), the document is written anew, below the comments at
// its head.
func EditYAML(text []byte, to *Document) ([]byte, error) {
	want, err := to.Normal()
	if err != nil {
		return nil, err
	}
	from, origins, err := parseAt(text, time.Time{})
	readable := err == nil
	if readable && Diff(from, want).Empty() {
		return text, nil
	}
	if isJSON(text) {
		out, err := json.MarshalIndent(want, "", "  ")
		return append(out, '\n'), err
	}
	if readable {
		if edited, ok := editYAML(text, from, origins, want); ok && means(edited, want) {
			return edited, nil
		}
	}
	out, err := FormatYAML(want)
	if err != nil {
		return nil, err
	}
	if whole := append(headComments(text), out...); means(whole, want) {
		return whole, nil
	}
	return out, nil
}

// means reports whether the text reads as the document.
func means(text []byte, d *Document) bool {
	again, err := Parse(text)
	return err == nil && Diff(again, d).Empty()
}

// headComments are the comments above the first line that is none.
func headComments(text []byte) []byte {
	var out []byte
	for line := range bytes.Lines(text) {
		trimmed := bytes.TrimSpace(line)
		if len(trimmed) > 0 && trimmed[0] != '#' {
			break
		}
		out = append(out, line...)
	}
	if len(out) > 0 && out[len(out)-1] != '\n' {
		out = append(out, '\n')
	}
	return out
}

// A yamlText is a document by its lines, with the changes that are to be made.
type yamlText struct {
	lines   []string // each with its end
	root    *yaml.Node
	changes []lineChange
}

// A lineChange puts text in the place of some lines; positions count from 0.
type lineChange struct {
	at, remove int
	text       string
}

// editYAML is false where the text is not written as line by line as it needs.
func editYAML(text []byte, from *Document, origins []string, to *Document) ([]byte, bool) {
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || origins == nil && len(from.Rules) > 0 || len(doc.Content) != 1 {
		return nil, false
	}
	t := &yamlText{root: doc.Content[0]}
	if t.root.Kind != yaml.MappingNode || t.root.Style&yaml.FlowStyle != 0 {
		return nil, false
	}
	t.lines = slices.Collect(strings.Lines(string(text)))
	if n := len(t.lines); n > 0 && !strings.HasSuffix(t.lines[n-1], "\n") {
		t.lines[n-1] += "\n"
	}
	if !t.editRules(from, origins, to) || !t.editTests(from, to) || !t.editFields(from, to) {
		return nil, false
	}
	return []byte(t.apply()), true
}

func (t *yamlText) apply() string {
	slices.SortStableFunc(t.changes, func(a, b lineChange) int { return a.at - b.at })
	var out strings.Builder
	next := 0
	for _, c := range t.changes {
		for ; next < c.at && next < len(t.lines); next++ {
			out.WriteString(t.lines[next])
		}
		out.WriteString(c.text)
		next = max(next, c.at+c.remove)
	}
	for ; next < len(t.lines); next++ {
		out.WriteString(t.lines[next])
	}
	return out.String()
}

func (t *yamlText) change(at, remove int, text string) {
	t.changes = append(t.changes, lineChange{at, remove, text})
}

// A part is a run of lines: of a field of the document, or of an entry of a list.
type part struct{ from, to int } // to is behind the last line with content

// key finds a field of the document.
func (t *yamlText) key(name string) (key, value *yaml.Node, p part) {
	for i := 0; i+1 < len(t.root.Content); i += 2 {
		if t.root.Content[i].Value != name {
			continue
		}
		key, value = t.root.Content[i], t.root.Content[i+1]
		end := len(t.lines)
		if i+2 < len(t.root.Content) {
			end = t.root.Content[i+2].Line - 1
		}
		return key, value, part{key.Line - 1, t.content(key.Line-1, end)}
	}
	return nil, nil, part{}
}

// content returns the end of the last line before end that has more than a comment.
func (t *yamlText) content(from, end int) int {
	for end > from+1 && (isBlank(t.lines[end-1]) || isComment(t.lines[end-1]) || strings.TrimSpace(t.lines[end-1]) == "...") {
		end--
	}
	return end
}

func isBlank(line string) bool   { return strings.TrimSpace(line) == "" }
func isComment(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "#") }
func indentOf(line string) int   { return len(line) - len(strings.TrimLeft(line, " ")) }

// A list is a list of the document that is written one entry after the other, each with a dash of its own.
type list struct {
	t       *yamlText
	key     string
	entries []part
	nodes   []*yaml.Node
	indent  int // of the dashes
	first   int // line behind the key
	end     int // behind the last entry
	open    int // the line of an empty list in brackets, or -1
	missing bool
}

func (t *yamlText) list(name string) (*list, bool) {
	key, value, whole := t.key(name)
	l := &list{t: t, key: name, open: -1}
	switch {
	case key == nil:
		l.missing, l.indent, l.end = true, t.root.Column-1+2, t.content(0, len(t.lines))
		return l, true
	case value.Kind != yaml.SequenceNode:
		return nil, false
	case len(value.Content) == 0:
		l.open, l.indent, l.end = key.Line-1, key.Column-1+2, whole.to
		return l, value.Line == key.Line && whole.to == key.Line && strings.Contains(t.lines[l.open], "]")
	case value.Style&yaml.FlowStyle != 0:
		return nil, false
	}
	l.indent, l.nodes, l.first, l.end = value.Column-1, value.Content, key.Line, whole.to
	for i, n := range value.Content {
		from := n.Line - 1
		for from >= key.Line && !(indentOf(t.lines[from]) == l.indent && strings.HasPrefix(t.lines[from][l.indent:], "-")) {
			from--
		}
		if from < key.Line {
			return nil, false
		}
		l.entries = append(l.entries, part{from, 0})
		if i > 0 {
			l.entries[i-1].to = t.content(l.entries[i-1].from, from)
		}
	}
	l.entries[len(l.entries)-1].to = whole.to
	return l, true
}

// above returns where the comment directly above an entry begins.
func (l *list) above(i int) int {
	from, least := l.entries[i].from, l.first
	if i > 0 {
		least = l.entries[i-1].to
	}
	for from > least && isComment(l.t.lines[from-1]) && indentOf(l.t.lines[from-1]) <= l.indent {
		from--
	}
	return from
}

// below returns where the comments end that belong to an entry by how far they are indented.
func (l *list) below(i int) int {
	end := l.entries[i].to
	for end < len(l.t.lines) && isComment(l.t.lines[end]) && indentOf(l.t.lines[end]) > l.indent {
		end++
	}
	return end
}

// remove takes an entry out, with the comment directly above it and one of the empty lines around.
func (l *list) remove(i int) {
	from, to := l.above(i), l.below(i)
	switch {
	case i > 0 && isBlank(l.t.lines[from-1]):
		from--
	case i == 0 && len(l.entries) > 1 && to < len(l.t.lines) && isBlank(l.t.lines[to]):
		to++
	}
	l.t.change(from, to-from, "")
}

// replace puts text in the place of an entry.
func (l *list) replace(i int, text string) {
	l.t.change(l.entries[i].from, l.entries[i].to-l.entries[i].from, indented(text, l.indent))
}

// snippet is the text of an entry, as if it stood at the left.
func (l *list) snippet(i int) string {
	var out strings.Builder
	for _, line := range l.t.lines[l.entries[i].from:l.entries[i].to] {
		if isBlank(line) || indentOf(line) < l.indent {
			out.WriteString(strings.TrimLeft(line, " "))
			continue
		}
		out.WriteString(line[l.indent:])
	}
	return out.String()
}

// finish appends entries, and keeps the list a list if nothing is left of it.
func (l *list) finish(left int, added []string) {
	t := l.t
	if len(added) == 0 {
		if left == 0 && len(l.entries) > 0 {
			key, _, _ := t.key(l.key)
			line := t.lines[key.Line-1]
			at := key.Column - 1 + strings.Index(line[key.Column-1:], ":") + 1
			t.change(key.Line-1, 1, line[:at]+" []"+line[at:])
		}
		return
	}
	var text strings.Builder
	if l.missing {
		fmt.Fprintf(&text, "%s%s:\n", strings.Repeat(" ", l.indent-2), l.key)
	}
	spaced := len(l.entries) > 1 && isBlank(t.lines[max(l.above(len(l.entries)-1)-1, 0)])
	for i, one := range added {
		if spaced && (left > 0 || i > 0) {
			text.WriteString("\n")
		}
		text.WriteString(indented(one, l.indent))
	}
	switch {
	case l.open >= 0:
		line := t.lines[l.open]
		from, to := strings.Index(line, "["), strings.LastIndex(line, "]")
		if i := strings.Index(line, "#"); i >= 0 {
			to = strings.Index(line, "]")
		}
		t.change(l.open, 1, strings.TrimRight(line[:from], " ")+line[to+1:]+text.String())
	case len(l.entries) > 0:
		t.change(l.below(len(l.entries)-1), 0, text.String())
	default:
		t.change(l.end, 0, text.String())
	}
}

func indented(text string, by int) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !isBlank(line) {
			out.WriteString(strings.Repeat(" ", by))
		}
		out.WriteString(line)
	}
	return out.String()
}
