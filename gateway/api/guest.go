package api

import (
	"context"
	"io"

	"portreeve.dev/nodes/guest/frame"
)

// A Guest works inside sandboxes. What it returns is the sandbox's word. Each method may return a *GuestError; any other
// error means that the sandbox could not be reached. Safe for concurrent use.
type Guest interface {
	// Exec starts a process. When ctx ends, it is killed.
	Exec(ctx context.Context, sandbox string, m frame.ExecMessage) (Process, error)
	// Read opens a regular file of at most max bytes.
	Read(ctx context.Context, sandbox, path string, max int64) (io.ReadCloser, frame.InfoMessage, error)
	// Write replaces a file as a whole, or leaves it as it was.
	Write(ctx context.Context, sandbox string, m frame.WriteMessage, content io.Reader) error
	// List returns what is in a folder.
	List(ctx context.Context, sandbox, path string) ([]frame.InfoMessage, error)
	// Delete removes a file, or with Recursive a folder.
	Delete(ctx context.Context, sandbox string, m frame.DeleteMessage) error
}

// A Process runs in a sandbox. Next has one caller; the other methods may be called at the same time.
type Process interface {
	// Next returns the next piece of output; io.EOF after the last, when Exit is known.
	Next(ctx context.Context) (Output, error)
	// Exit says how the process ended, after Next returned io.EOF.
	Exit() frame.ExitMessage
	// Write sends input.
	Write(p []byte) (int, error)
	// CloseInput ends the input.
	CloseInput() error
	// Resize changes the size of its terminal.
	Resize(size frame.Size) error
	// Close kills the process if it still runs, and frees what it used.
	Close() error
}

// An Output is a piece of what a process wrote. Data is the receiver's.
type Output struct {
	Stderr bool
	Data   []byte
}

// A GuestError is a refusal by the sandbox, or in its place by the host.
type GuestError struct {
	Code frame.Code
}

func (e *GuestError) Error() string { return "guest: " + string(e.Code) }
