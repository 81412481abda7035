package runsc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// ErrNotFound says that there is no such container.
var ErrNotFound = errors.New("no such container")

// An Error is a runsc command that failed.
type Error struct {
	Command string
	Message string // runsc's own words, one line; for logs, not for clients
	cause   error  // exit status, or that of the context
}

func (e *Error) Error() string {
	if e.Message == "" {
		return fmt.Sprintf("runsc %s: %v", e.Command, e.cause)
	}
	return fmt.Sprintf("runsc %s: %s (%v)", e.Command, e.Message, e.cause)
}

func (e *Error) Unwrap() error { return e.cause }

// Is knows ErrNotFound. runsc has no exit status of its own for it, so its text must serve: it is that of loading a container's file.
func (e *Error) Is(target error) bool {
	return target == ErrNotFound && strings.Contains(e.Message, "loading container: file does not exist")
}

// lastMessage reads the log of a create and joins its messages, the cause first.
func lastMessage(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	dec := json.NewDecoder(io.LimitReader(f, 64<<10))
	var all []string
	for {
		var line struct{ Msg, Level string }
		if dec.Decode(&line) != nil {
			break
		}
		if line.Level == "error" {
			all = append(all, line.Msg)
		}
	}
	return oneLine(strings.Join(all, "; "))
}

// oneLine makes a message fit for one log line.
func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 1000 {
		s = s[:1000] + "…"
	}
	return strings.ToValidUTF8(s, "?")
}
