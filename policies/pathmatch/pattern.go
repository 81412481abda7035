package pathmatch

import (
	"fmt"
	"strings"
)

// MaxPattern is the longest pattern.
const MaxPattern = 1024

// A Pattern is a path of a rule: segments, in which * stands for any characters of one segment, and at the end
// perhaps ** for any number of further segments, also none. A segment that is only * needs at least one character.
// To match a star itself, write %2A. A slash at the end of a path or pattern makes no difference, as servers seldom see one.
type Pattern struct {
	text string
	deep bool // ends in **
	// The segments in the two readings that servers have of an encoded slash: a character, or a slash.
	kept, split []segment
}

// A segment is what one segment of a path is compared with.
type segment struct {
	symbols []symbol
	literal string // the segment, if it has neither stars nor escapes: compared at once
}

// A symbol is a decoded byte, or the star.
type symbol uint16

const star symbol = 256

// Compile reads a pattern.
func Compile(pattern string) (*Pattern, error) {
	if len(pattern) > MaxPattern {
		return nil, fmt.Errorf("pattern of %d bytes is longer than %d", len(pattern), MaxPattern)
	}
	text, err := Canonical(pattern)
	if err != nil {
		return nil, err
	}
	if len(text) > 1 {
		text = strings.TrimSuffix(text, "/")
	}
	body, deep := strings.CutSuffix(text, "/**")
	if strings.Contains(body, "**") {
		return nil, fmt.Errorf("pattern %q: ** stands only at the end, after a slash", pattern)
	}
	p := &Pattern{text: text, deep: deep}
	body = strings.TrimPrefix(body, "/")
	p.kept = segments(body)
	p.split = p.kept
	if strings.Contains(body, "%2F") {
		p.split = segments(strings.TrimSuffix(strings.ReplaceAll(body, "%2F", "/"), "/"))
	}
	return p, nil
}

func segments(body string) (all []segment) {
	if body == "" {
		return nil
	}
	all = make([]segment, 0, 1+strings.Count(body, "/"))
	for text := range strings.SplitSeq(body, "/") {
		one := segment{symbols: make([]symbol, 0, len(text))}
		for i := 0; i < len(text); {
			if text[i] == '*' {
				one.symbols, i = append(one.symbols, star), i+1
				continue
			}
			c, width := next(text, i)
			one.symbols, i = append(one.symbols, c), i+width
		}
		if !strings.ContainsAny(text, "*%") {
			one.literal = text
		}
		all = append(all, one)
	}
	return all
}

// String is the pattern in its normal form.
func (p *Pattern) String() string { return p.text }

// MatchAll reports whether the canonical path matches however a server reads an encoded slash. It is for allowing.
func (p *Pattern) MatchAll(path string) bool {
	return p.match(path, false) && (!strings.Contains(path, "%2F") || p.match(path, true))
}

// MatchAny reports whether the canonical path matches in some reading of an encoded slash. It is for denying.
func (p *Pattern) MatchAny(path string) bool {
	return p.match(path, false) || strings.Contains(path, "%2F") && p.match(path, true)
}

func (p *Pattern) match(path string, split bool) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	rest := strings.TrimSuffix(path[1:], "/")
	want := p.kept
	if split {
		rest, want = strings.TrimSuffix(rest, "%2F"), p.split
	}
	more := rest != ""
	for i := range want {
		if !more {
			return false
		}
		end, after := cut(rest, split)
		if !want[i].match(rest[:end]) {
			return false
		}
		more = after <= len(rest)
		if more {
			rest = rest[after:]
		}
	}
	return !more || p.deep
}

// cut returns where the first segment ends and the next begins; beyond the end if there is none.
func cut(path string, split bool) (end, after int) {
	end, after = len(path), len(path)+1
	if i := strings.IndexByte(path, '/'); i >= 0 {
		end, after = i, i+1
	}
	if split {
		if i := strings.Index(path[:end], "%2F"); i >= 0 {
			end, after = i, i+3
		}
	}
	return end, after
}

func (p *segment) match(s string) bool {
	if p.literal != "" && strings.IndexByte(s, '%') < 0 {
		return p.literal == s
	}
	return glob(p.symbols, s)
}

// glob compares a segment by its symbols. It goes back only to the last star, so its time is bounded by the product of the lengths.
func glob(pattern []symbol, s string) bool {
	if len(pattern) == 1 && pattern[0] == star {
		return s != ""
	}
	i, j := 0, 0
	backPattern, backText := -1, 0
	for j < len(s) {
		c, width := next(s, j)
		switch {
		case i < len(pattern) && pattern[i] == star:
			backPattern, backText = i, j
			i++
		case i < len(pattern) && pattern[i] == c:
			i, j = i+1, j+width
		case backPattern >= 0:
			_, width := next(s, backText)
			backText += width
			i, j = backPattern+1, backText
		default:
			return false
		}
	}
	for i < len(pattern) && pattern[i] == star {
		i++
	}
	return i == len(pattern)
}

// next decodes the byte at i of a canonical path.
func next(s string, i int) (symbol, int) {
	if s[i] == '%' && i+2 < len(s) {
		if hi, lo := unhex(s[i+1]), unhex(s[i+2]); hi >= 0 && lo >= 0 {
			return symbol(hi<<4 | lo), 3
		}
	}
	return symbol(s[i]), 1
}
