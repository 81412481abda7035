package frame

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// Message is the payload of a control frame.
type Message interface {
	// Check says what is out of bounds. It runs after each decode and before each encode.
	Check() error
}

// Encode returns the one form in which m is sent.
func Encode(m Message) ([]byte, error) {
	if err := m.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return json.Marshal(m)
}

// Decode reads exactly one M: unknown fields, trailing bytes and values out of bounds are errors.
func Decode[M Message](payload []byte) (M, error) {
	var m, zero M
	dec := json.NewDecoder(bytes.NewReader(payload))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil {
		return zero, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return zero, fmt.Errorf("%w: bytes after the message", ErrFormat)
	}
	if err := m.Check(); err != nil {
		return zero, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	return m, nil
}

// HelloMessage is init's first frame on its main connection.
type HelloMessage struct {
	Version int    `json:"version"`
	PID     int    `json:"pid"`
	BootID  string `json:"boot_id"` // chosen by init at its start: a restore keeps it, a restart doesn't
}

// Check implements Message.
func (m HelloMessage) Check() error {
	if m.Version < 1 || m.PID < 1 || !isID(m.BootID) {
		return fmt.Errorf("hello out of bounds")
	}
	return nil
}

// OpenMessage is both Open (host asks for a stream) and Stream (init's answer): the number and its token.
type OpenMessage struct {
	Stream uint64 `json:"stream"`
	Token  string `json:"token"`
}

// Check implements Message.
func (m OpenMessage) Check() error {
	if m.Stream == 0 || !isID(m.Token) {
		return fmt.Errorf("stream out of bounds")
	}
	return nil
}

// StartedMessage names the process as the sandbox numbers it.
type StartedMessage struct {
	PID int `json:"pid"`
}

// Check implements Message.
func (m StartedMessage) Check() error { return within("pid", int64(m.PID), 1, 1<<22) }

// SignalMessage asks for a signal to the process group.
type SignalMessage struct {
	Signal int `json:"signal"`
}

// Check implements Message.
func (m SignalMessage) Check() error { return within("signal", int64(m.Signal), 1, 64) }

// CreditMessage gives back room in the stdin window.
type CreditMessage struct {
	Bytes int `json:"bytes"`
}

// Check implements Message.
func (m CreditMessage) Check() error { return within("credit", int64(m.Bytes), 1, StdinWindow) }

// ExitMessage says how a process ended. A process ended by signal n has Code 128+n.
type ExitMessage struct {
	Code     int  `json:"code"`
	Signal   int  `json:"signal,omitempty"`
	TimedOut bool `json:"timed_out,omitempty"`
}

// Check implements Message.
func (m ExitMessage) Check() error {
	if m.Code < 0 || m.Code > 255 || m.Signal < 0 || m.Signal > 64 || (m.Signal != 0 && m.Code != 128+m.Signal) {
		return fmt.Errorf("exit out of bounds")
	}
	return nil
}

// PongMessage is what init knows about its sandbox.
type PongMessage struct {
	Processes int `json:"processes"`
	Streams   int `json:"streams"`
}

// Check implements Message.
func (m PongMessage) Check() error {
	return errors.Join(within("processes", int64(m.Processes), 0, 1<<22), within("streams", int64(m.Streams), 0, 1<<16))
}

// Code is the closed list of reasons why an operation failed.
type Code string

// What init says; the last group is said by the host in init's place.
const (
	CodeNoCommand     Code = "command_not_found"
	CodeNotExecutable Code = "not_executable"
	CodeNoCwd         Code = "cwd_missing"
	CodeProcessLimit  Code = "process_limit"
	CodeBadRequest    Code = "bad_request"
	CodePathOutside   Code = "path_outside"
	CodeNotFound      Code = "file_not_found"
	CodeNotRegular    Code = "not_regular"
	CodePermission    Code = "permission_denied"
	CodeTooLarge      Code = "too_large"
	CodeNoSpace       Code = "no_space"
	CodeRefused       Code = "connection_refused"
	CodeInternal      Code = "internal"

	CodeUnavailable Code = "sandbox_unavailable"
	CodeBusy        Code = "too_many_streams"
	CodeTimeout     Code = "timeout"
	CodeHostile     Code = "protocol_violation"
)

var codes = []Code{
	CodeNoCommand, CodeNotExecutable, CodeNoCwd, CodeProcessLimit, CodeBadRequest, CodePathOutside, CodeNotFound, CodeNotRegular,
	CodePermission, CodeTooLarge, CodeNoSpace, CodeRefused, CodeInternal, CodeUnavailable, CodeBusy, CodeTimeout, CodeHostile,
}

const maxText = 512

// ErrorMessage ends an operation. Message is for people and comes from the sandbox: never an audit fact.
type ErrorMessage struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// NewError returns an ErrorMessage whose text fits the bounds.
func NewError(code Code, text string) ErrorMessage {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	return ErrorMessage{Code: code, Message: strings.ToValidUTF8(text[:min(len(text), maxText)], "")}
}

// Check implements Message.
func (m ErrorMessage) Check() error {
	if !slices.Contains(codes, m.Code) || len(m.Message) > maxText || strings.ContainsFunc(m.Message, unicode.IsControl) {
		return fmt.Errorf("error out of bounds")
	}
	return nil
}

func within(what string, v, low, high int64) error {
	if v < low || v > high {
		return fmt.Errorf("%s %d is not within %d to %d", what, v, low, high)
	}
	return nil
}

// isID reports whether s is 16 random bytes in hex.
func isID(s string) bool { return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == "" }
