package policies

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// editRules brings the rules, and the presets that some of them come from, to what they are to be.
func (t *yamlText) editRules(from *Document, origins []string, to *Document) bool {
	wanted := make(map[string]*Rule, len(to.Rules))
	for i := range to.Rules {
		wanted[to.Rules[i].ID] = &to.Rules[i]
	}
	// What each place of the text stands for, and whether that is still so.
	places, intact := map[string][]*Rule{}, map[string]bool{}
	var order []string
	for i := range from.Rules {
		r, place := &from.Rules[i], origins[i]
		if places[place] == nil {
			order, intact[place] = append(order, place), true
		}
		places[place] = append(places[place], r)
		now := wanted[r.ID]
		intact[place] = intact[place] && now != nil && len(ruleFields(r, now)) == 0
	}
	l, ok := t.list("rules")
	if !ok {
		return false
	}
	var added []string
	write := func(rules []*Rule) (all []string) {
		for _, r := range rules {
			if now := wanted[r.ID]; now != nil {
				all = append(all, entryText(now))
			}
		}
		return all
	}
	var gone []int // presets
	left := 0
	for _, place := range order {
		var i int
		rules := places[place]
		switch {
		case strings.HasPrefix(place, "presets["):
			if fmt.Sscanf(place, "presets[%d]", &i); !intact[place] {
				gone, added = append(gone, i), append(added, write(rules)...)
			}
		case intact[place]:
			left++
		default:
			fmt.Sscanf(place, "rules[%d]", &i)
			if i >= len(l.entries) {
				return false
			}
			n := l.editRule(i, rules, write(rules), wanted)
			left += n
		}
	}
	known := make(map[string]bool, len(from.Rules))
	for i := range from.Rules {
		known[from.Rules[i].ID] = true
	}
	for i := range to.Rules {
		if r := &to.Rules[i]; !known[r.ID] {
			added = append(added, entryText(r))
		}
	}
	l.finish(left, added)
	return t.dropPresets(gone)
}

// editRule changes one entry, that stands for one rule or for several, and returns how many are left of it.
func (l *list) editRule(i int, rules []*Rule, text []string, wanted map[string]*Rule) int {
	switch {
	case len(text) == 0:
		l.remove(i)
		return 0
	case len(rules) == 1 && !isGit(l.nodes[i]):
		now := wanted[rules[0].ID]
		edited, ok := editEntry(l.snippet(i), now.wire(), ruleFields(rules[0], now), func(text string) bool {
			d, err := Parse([]byte("rules:\n" + text))
			return err == nil && len(d.Rules) == 1 && len(ruleFields(&d.Rules[0], now)) == 0
		})
		if ok {
			text = []string{edited}
		}
	default:
		text[0] = commentsOf(l.nodes[i], true) + text[0]
	}
	l.replace(i, strings.Join(text, ""))
	return len(text)
}

func isGit(n *yaml.Node) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "git" {
			return true
		}
	}
	return false
}

// commentsOf gathers the comments inside an entry that is written anew, a line each.
func commentsOf(n *yaml.Node, outermost bool) string {
	var out strings.Builder
	add := func(text string) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				out.WriteString(line + "\n")
			}
		}
	}
	if !outermost { // those around the entry stay where they are
		add(n.HeadComment)
		add(n.FootComment)
	}
	add(n.LineComment)
	for i, c := range n.Content {
		if outermost && i == len(n.Content)-2 {
			c = &yaml.Node{Kind: c.Kind, HeadComment: c.HeadComment, LineComment: c.LineComment}
		}
		out.WriteString(commentsOf(c, false))
	}
	return out.String()
}

// entryText writes a rule or a test as the only entry of a list.
func entryText(v any) string {
	if r, ok := v.(*Rule); ok {
		v = r.wire()
	}
	text, err := encodeYAML([]any{v})
	if err != nil {
		return ""
	}
	return string(text)
}

// editEntry changes fields of a mapping that is the only entry of a list, and keeps the rest of it, and its comments. Where that does
// not read as it should, as a default that isn't written depends on what changed, it writes out every field.
func editEntry(text string, wire any, fields []string, good func(string) bool) (string, bool) {
	var entry yaml.Node
	raw, err := encodeYAML(wire)
	var want yaml.Node
	if err != nil || yaml.Unmarshal([]byte(text), &entry) != nil || yaml.Unmarshal(raw, &want) != nil {
		return "", false
	}
	if len(entry.Content) != 1 || len(entry.Content[0].Content) != 1 || entry.Content[0].Content[0].Kind != yaml.MappingNode {
		return "", false
	}
	all := []string{}
	for i := 0; i+1 < len(want.Content[0].Content); i += 2 {
		all = append(all, want.Content[0].Content[i].Value)
	}
	for _, set := range [][]string{fields, all} {
		setFields(entry.Content[0].Content[0], want.Content[0], set)
		if out, err := encodeYAML(&entry); err == nil && good(string(out)) {
			return string(out), true
		}
	}
	return "", false
}

// setFields takes fields over from want; what want lacks goes.
func setFields(in, want *yaml.Node, fields []string) {
	for _, name := range fields {
		at, from := fieldOf(in, name), fieldOf(want, name)
		switch {
		case from < 0 && at >= 0:
			in.Content = slices.Delete(in.Content, at, at+2)
		case from < 0:
		case at < 0:
			in.Content = append(in.Content, want.Content[from], want.Content[from+1])
		default:
			in.Content[at+1] = takeOver(in.Content[at+1], want.Content[from+1])
		}
	}
}

func fieldOf(n *yaml.Node, name string) int {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return i
		}
	}
	return -1
}

// takeOver is the new value with the old one's comments, and with the entries that both have as they were.
func takeOver(old, value *yaml.Node) *yaml.Node {
	out := *value
	out.HeadComment, out.LineComment, out.FootComment = old.HeadComment, old.LineComment, old.FootComment
	if old.Kind == yaml.SequenceNode && value.Kind == yaml.SequenceNode {
		out.Style = old.Style
		out.Content = nil
		for _, v := range value.Content {
			if i := slices.IndexFunc(old.Content, func(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Value == v.Value }); i >= 0 {
				v = old.Content[i]
			}
			out.Content = append(out.Content, v)
		}
	}
	return &out
}

// dropPresets takes names out of the list of presets.
func (t *yamlText) dropPresets(gone []int) bool {
	if len(gone) == 0 {
		return true
	}
	_, value, whole := t.key("presets")
	if value == nil || value.Kind != yaml.SequenceNode {
		return false
	}
	if len(gone) == len(value.Content) {
		t.change(whole.from, whole.to-whole.from, "")
		return true
	}
	return t.rewrite(whole, func(field *yaml.Node) {
		kept := field.Content[:0]
		for i, n := range field.Content {
			if !slices.Contains(gone, i) {
				kept = append(kept, n)
			}
		}
		field.Content = kept
	})
}

// rewrite changes the value of one field of the document in place.
func (t *yamlText) rewrite(p part, change func(value *yaml.Node)) bool {
	var doc yaml.Node
	indent := t.root.Column - 1
	var text strings.Builder
	for _, line := range t.lines[p.from:p.to] {
		text.WriteString(line[min(indent, indentOf(line)):])
	}
	if yaml.Unmarshal([]byte(text.String()), &doc) != nil || len(doc.Content) != 1 || len(doc.Content[0].Content) != 2 {
		return false
	}
	change(doc.Content[0].Content[1])
	out, err := encodeYAML(&doc)
	if err != nil {
		return false
	}
	t.change(p.from, p.to-p.from, indented(string(out), indent))
	return true
}

// editTests does for tests what editRules does for rules.
func (t *yamlText) editTests(from, to *Document) bool {
	if sameSet(from.Tests, to.Tests) {
		return true
	}
	l, ok := t.list("tests")
	if !ok || len(l.entries) != len(from.Tests) {
		return false
	}
	before, after := wireTests(from.Tests), wireTests(to.Tests)
	find := func(in []wireTest, name string) int {
		return slices.IndexFunc(in, func(w wireTest) bool { return w.Name == name })
	}
	left := 0
	for i, w := range before {
		at := find(after, w.Name)
		if at < 0 {
			l.remove(i)
			continue
		}
		left++
		if after[at] == w {
			continue
		}
		text, ok := editEntry(l.snippet(i), after[at], testKeys, func(text string) bool {
			d, err := Parse([]byte("rules: []\ntests:\n" + text))
			return err == nil && len(d.Tests) == 1 && d.Tests[0] == to.Tests[at]
		})
		if !ok {
			text = entryText(after[at])
		}
		l.replace(i, text)
	}
	var added []string
	for _, w := range after {
		if find(before, w.Name) < 0 {
			added = append(added, entryText(w))
		}
	}
	l.finish(left, added)
	return true
}

// editFields sets the document's other fields.
func (t *yamlText) editFields(from, to *Document) bool {
	w := to.wire()
	values := map[string]string{"observe_until": w.ObserveUntil, "failure_mode": w.FailureMode, "max_stale": w.MaxStale, "doh": w.DoH}
	for _, name := range Diff(from, to).Fields {
		text, ok := values[name]
		if !ok {
			continue
		}
		key, _, whole := t.key(name)
		switch {
		case key == nil && text != "":
			t.change(len(t.lines), 0, fmt.Sprintf("%s%s: %s\n", strings.Repeat(" ", t.root.Column-1), name, text))
		case key != nil && text == "":
			t.change(whole.from, whole.to-whole.from, "")
		case key != nil:
			if !t.rewrite(whole, func(value *yaml.Node) {
				value.Kind, value.Tag, value.Style, value.Value, value.Content = yaml.ScalarNode, "", 0, text, nil
			}) {
				return false
			}
		}
	}
	return true
}
