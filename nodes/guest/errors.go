package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"portreeve.dev/nodes/guest/frame"
)

// Sentinels of failed operations, one for each code. They are matched by errors.Is.
var (
	ErrNoCommand     = errors.New("command not found")
	ErrNotExecutable = errors.New("not executable")
	ErrNoCwd         = errors.New("working directory missing")
	ErrProcessLimit  = errors.New("too many processes")
	ErrBadRequest    = errors.New("bad request")
	ErrPathOutside   = errors.New("path outside the writable folders")
	ErrNotFound      = errors.New("file not found")
	ErrNotRegular    = errors.New("not a regular file")
	ErrPermission    = errors.New("permission denied")
	ErrTooLarge      = errors.New("too large")
	ErrNoSpace       = errors.New("no space left")
	ErrRefused       = errors.New("connection refused")
	ErrInternal      = errors.New("operation broke inside the sandbox")
	ErrUnavailable   = errors.New("no init is connected")
	ErrBusy          = errors.New("too many streams")
	ErrTimeout       = errors.New("the sandbox did not answer in time")
	ErrHostile       = errors.New("the sandbox broke the protocol")
)

var sentinels = map[frame.Code]error{
	frame.CodeNoCommand: ErrNoCommand, frame.CodeNotExecutable: ErrNotExecutable, frame.CodeNoCwd: ErrNoCwd,
	frame.CodeProcessLimit: ErrProcessLimit, frame.CodeBadRequest: ErrBadRequest, frame.CodePathOutside: ErrPathOutside,
	frame.CodeNotFound: ErrNotFound, frame.CodeNotRegular: ErrNotRegular, frame.CodePermission: ErrPermission,
	frame.CodeTooLarge: ErrTooLarge, frame.CodeNoSpace: ErrNoSpace, frame.CodeRefused: ErrRefused, frame.CodeInternal: ErrInternal,
	frame.CodeUnavailable: ErrUnavailable, frame.CodeBusy: ErrBusy, frame.CodeTimeout: ErrTimeout, frame.CodeHostile: ErrHostile,
}

// OperationError is a failed operation as the sandbox tells it. Text is hostile: show it to the sandbox's owner, decide nothing by it.
type OperationError struct {
	Code frame.Code
	Text string
}

func (e *OperationError) Error() string {
	if e.Text == "" {
		return e.Unwrap().Error()
	}
	return fmt.Sprintf("%v: %s", e.Unwrap(), e.Text)
}

// Unwrap returns the sentinel of the code.
func (e *OperationError) Unwrap() error {
	if err := sentinels[e.Code]; err != nil {
		return err
	}
	return ErrInternal
}

// operationError decodes an Error frame.
func operationError(payload []byte) error {
	m, err := frame.Decode[frame.ErrorMessage](payload)
	if err != nil {
		return err
	}
	return &OperationError{Code: m.Code, Text: m.Message}
}

// HostileError says that the init of a sandbox broke the protocol. It matches ErrHostile.
type HostileError struct {
	Sandbox string
	What    error
}

func (e *HostileError) Error() string {
	return fmt.Sprintf("init of sandbox %q: %v", e.Sandbox, e.What)
}

// Unwrap returns ErrHostile and what was broken.
func (e *HostileError) Unwrap() []error { return []error{ErrHostile, e.What} }

// codeOf is how inward tells control about an error of its own; the cause goes into the log only.
func codeOf(err error) frame.Code {
	switch {
	case errors.Is(err, ErrHostile), errors.Is(err, frame.ErrFormat):
		return frame.CodeHostile
	case errors.Is(err, ErrBusy):
		return frame.CodeBusy
	case errors.Is(err, ErrTimeout), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return frame.CodeTimeout
	}
	return frame.CodeUnavailable
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}
