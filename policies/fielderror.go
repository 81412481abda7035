package policies

import (
	"fmt"
	"strings"
)

// A FieldError is one thing wrong with a document, at the place where it is.
type FieldError struct {
	Path    string // rules[2].hosts[0]; empty for the document itself
	Message string // what is wrong
	Hint    string // what to write instead; may be empty
}

func (e *FieldError) Error() string {
	s := e.Message
	if e.Path != "" {
		s = e.Path + ": " + s
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// maxErrors is how many errors of one document are reported.
const maxErrors = 20

// Errors is everything wrong with a document. errors.As finds the first *FieldError in it.
type Errors []*FieldError

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, one := range e {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "; ")
}

// Unwrap lets errors.Is and errors.As look at each.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

func (e *Errors) add(path, hint, format string, args ...any) {
	if len(*e) < maxErrors {
		*e = append(*e, &FieldError{Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
}

func (e Errors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	return e
}
