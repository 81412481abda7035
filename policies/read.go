package policies

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A reader takes a tree apart and gathers what is wrong with it.
type reader struct {
	errs Errors
	now  time.Time // zero: no clock was given
	// origins are the places that the document's rules come from; of the known form, none.
	origins []string
}

// object returns the fields of n, having refused each key that is not known. A nil map means that n is no object.
func (r *reader) object(n *node, path string, known []string) map[string]*node {
	if n.kind != kindObject {
		r.errs.add(path, "", "is %s, not an object", n.kind)
		return nil
	}
	fields := make(map[string]*node, len(n.keys))
	for i, key := range n.keys {
		if !slices.Contains(known, key) {
			r.errs.add(join(path, key), Nearest(key, known), "unknown field")
			continue
		}
		fields[key] = n.values[i]
	}
	return fields
}

func (r *reader) string(n *node, path string) string {
	if n.kind != kindString {
		hint := ""
		if n.kind == kindNumber || n.kind == kindBool {
			hint = fmt.Sprintf("write %q", n.text)
		}
		r.errs.add(path, hint, "is %s, not a string", n.kind)
		return ""
	}
	return n.text
}

func (r *reader) bool(n *node, path string) bool {
	if n.kind != kindBool {
		r.errs.add(path, "write true or false", "is %s, not a boolean", n.kind)
		return false
	}
	return n.text == "true" || n.text == "True" || n.text == "TRUE"
}

// list returns the values of a list that is not empty and not longer than limit.
func (r *reader) list(n *node, path string, limit int) []*node {
	switch {
	case n.kind != kindList:
		r.errs.add(path, "", "is %s, not a list", n.kind)
	case len(n.values) == 0:
		r.errs.add(path, "leave it out, or name something", "an empty list")
	case len(n.values) > limit:
		r.errs.add(path, "", "%d entries are more than %d", len(n.values), limit)
	default:
		return n.values
	}
	return nil
}

func (r *reader) strings(n *node, path string, limit int) []string {
	var all []string
	for i, v := range r.list(n, path, limit) {
		all = append(all, r.string(v, at(path, i)))
	}
	return all
}

// choice returns the index of the string among names, and 0 with an error if it is none of them.
func (r *reader) choice(n *node, path string, names []string) int {
	if n.kind != kindString {
		r.errs.add(path, "use one of "+strings.Join(names, ", "), "is %s, not a string", n.kind)
		return 0
	}
	i := slices.Index(names, n.text)
	if i < 0 {
		r.errs.add(path, "use one of "+strings.Join(names, ", "), "%q is not known", n.text)
		return 0
	}
	return i
}

func (r *reader) time(n *node, path string) time.Time {
	const hint = "write a time like 2026-01-31T12:00:00Z"
	if n.kind != kindString {
		r.errs.add(path, hint, "is %s, not a time", n.kind)
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, n.text)
	if err != nil {
		r.errs.add(path, hint, "%q is not a time with a zone", n.text)
	}
	return t
}

func (r *reader) duration(n *node, path string) time.Duration {
	const hint = "write a duration like 5m"
	if n.kind != kindString {
		r.errs.add(path, hint, "is %s, not a duration", n.kind)
		return 0
	}
	d, err := time.ParseDuration(n.text)
	if err != nil {
		r.errs.add(path, hint, "%q is not a duration", n.text)
	}
	return d
}

// ports reads numbers and ranges; a range is "first-last".
func (r *reader) ports(n *node, path string, limit int) []PortRange {
	var all []PortRange
	for i, v := range r.list(n, path, limit) {
		here := at(path, i)
		first, last, isRange := strings.Cut(v.text, "-")
		if !isRange {
			last = first
		}
		a, aok := port(first)
		b, bok := port(last)
		if !aok || !bok || v.kind != kindNumber && v.kind != kindString || v.kind == kindNumber && isRange {
			r.errs.add(here, `write a number from 1 to 65535, or a range like "8000-8099"`, "%q is not a port", v.text)
			continue
		}
		all = append(all, PortRange{a, b})
	}
	return all
}

// port reads a decimal without sign, exponent or leading zeros.
func port(s string) (uint16, bool) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil && n > 0 && s[0] != '0' && s[0] != '+'
}
