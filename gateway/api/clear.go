package api

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// clearer returns a function that removes from a message each value that was sent, so that a secret pasted into the wrong
// place is not repeated. Names of fields stay: they say what is wrong.
func clearer(sent []byte) func(string) string {
	var values []string
	var document any
	if yaml.Unmarshal(sent, &document) == nil { // JSON is YAML
		collect(document, &values)
	} else {
		// Not even readable: then no word of it may come back.
		values = strings.FieldsFunc(string(sent), func(r rune) bool { return strings.ContainsRune(" \t\r\n\"'{}[],:", r) })
	}
	// The longest first: a short value may be a part of it.
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	return func(message string) string {
		for _, v := range values {
			message = strings.ReplaceAll(message, v, "…")
		}
		return message
	}
}

// short values can't be secrets, and removing them would garble the words of a message.
const shortest = 8

func collect(v any, into *[]string) {
	switch v := v.(type) {
	case string:
		if len(v) >= shortest {
			*into = append(*into, v)
		}
	case []any:
		for _, e := range v {
			collect(e, into)
		}
	case map[string]any:
		for _, e := range v {
			collect(e, into)
		}
	case map[any]any:
		for _, e := range v {
			collect(e, into)
		}
	}
}
