package frame

import (
	"errors"
	"fmt"
	"strings"
)

// Bounds of the operations.
const (
	MaxFile    = 1 << 30 // bytes of one file, read or written
	MaxEntries = 10000   // of one listing
	maxPath    = 4096
	maxTimeout = 7 * 24 * 3600 * 1000
)

// Size is that of a terminal, in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Check implements Message.
func (s Size) Check() error {
	return errors.Join(within("rows", int64(s.Rows), 1, 4096), within("cols", int64(s.Cols), 1, 4096))
}

// ExecMessage starts a process under the uid of the user.
type ExecMessage struct {
	Argv      []string          `json:"argv"`
	Env       map[string]string `json:"env,omitempty"`
	Cwd       string            `json:"cwd,omitempty"` // default /workspace
	TTY       *Size             `json:"tty,omitempty"` // stdin, stdout and stderr are one terminal
	Stdin     bool              `json:"stdin,omitempty"`
	TimeoutMS int64             `json:"timeout_ms,omitempty"` // 0: none
	Detach    bool              `json:"detach,omitempty"`     // Cancel doesn't kill it
}

// Check implements Message.
func (m ExecMessage) Check() error {
	if len(m.Argv) == 0 || m.Argv[0] == "" {
		return fmt.Errorf("argv is empty")
	}
	if hasNUL(strings.Join(m.Argv, "")) {
		return fmt.Errorf("argv holds a NUL")
	}
	for name, value := range m.Env {
		if name == "" || strings.Contains(name, "=") || hasNUL(name) || hasNUL(value) {
			return fmt.Errorf("env holds an impossible name or value")
		}
	}
	if hasNUL(m.Cwd) || len(m.Cwd) > maxPath {
		return fmt.Errorf("cwd is not a path")
	}
	if m.TTY != nil {
		if err := m.TTY.Check(); err != nil {
			return err
		}
	}
	return within("timeout", m.TimeoutMS, 0, maxTimeout)
}

// HasInput reports whether Stdin frames may follow.
func (m ExecMessage) HasInput() bool { return m.Stdin || m.TTY != nil }

// ReadMessage asks for a regular file of at most Max bytes.
type ReadMessage struct {
	Path string `json:"path"`
	Max  int64  `json:"max"`
}

// Check implements Message.
func (m ReadMessage) Check() error {
	return errors.Join(checkPath(m.Path), within("max", m.Max, 0, MaxFile))
}

// WriteMessage replaces a file as a whole, or leaves it as it was.
type WriteMessage struct {
	Path   string `json:"path"`
	Mode   uint32 `json:"mode,omitempty"` // permission bits; 0: those of the file that is replaced, else 0644
	Mkdirs bool   `json:"mkdirs,omitempty"`
}

// Check implements Message.
func (m WriteMessage) Check() error {
	return errors.Join(checkPath(m.Path), within("mode", int64(m.Mode), 0, 0o777))
}

// PathMessage is the operation OpList or OpStat.
type PathMessage struct {
	Path string `json:"path"`
}

// Check implements Message.
func (m PathMessage) Check() error { return checkPath(m.Path) }

// DeleteMessage removes a file or an empty folder, with Recursive a folder and what is in it.
type DeleteMessage struct {
	Path      string `json:"path"`
	Recursive bool   `json:"recursive,omitempty"`
}

// Check implements Message.
func (m DeleteMessage) Check() error { return checkPath(m.Path) }

// RelayMessage asks for a connection to a port on the sandbox's loopback.
type RelayMessage struct {
	Port uint16 `json:"port"`
}

// Check implements Message.
func (m RelayMessage) Check() error { return within("port", int64(m.Port), 1, 65535) }

// Kind is what a name stands for.
type Kind string

// Kinds of InfoMessage.
const (
	KindFile    Kind = "file"
	KindDir     Kind = "directory"
	KindSymlink Kind = "symlink"
	KindOther   Kind = "other"
)

// InfoMessage describes one file.
type InfoMessage struct {
	Name     string `json:"name"`
	Kind     Kind   `json:"kind"`
	Size     int64  `json:"size"`
	Mode     uint32 `json:"mode"`
	Modified int64  `json:"modified"` // Unix milliseconds
}

// Check implements Message.
func (m InfoMessage) Check() error {
	if m.Kind != KindFile && m.Kind != KindDir && m.Kind != KindSymlink && m.Kind != KindOther {
		return fmt.Errorf("kind %q is unknown", m.Kind)
	}
	// 255 bytes is the longest name; a byte that isn't UTF-8 arrives as a character of three.
	if m.Name == "" || len(m.Name) > 3*255 || strings.ContainsAny(m.Name, "/\x00") {
		return fmt.Errorf("name is not a file name")
	}
	return errors.Join(within("size", m.Size, 0, 1<<62), within("time", m.Modified, -1<<53, 1<<53), within("mode", int64(m.Mode), 0, 0o777))
}

// EntriesPerFrame keeps an Entries frame below MaxPayload, however the names are escaped.
const EntriesPerFrame = 32

// EntriesMessage is a part of a listing.
type EntriesMessage []InfoMessage

// Check implements Message.
func (m EntriesMessage) Check() error {
	if len(m) == 0 || len(m) > EntriesPerFrame {
		return fmt.Errorf("%d entries", len(m))
	}
	for _, e := range m {
		if err := e.Check(); err != nil {
			return err
		}
	}
	return nil
}

// Operation is the decoded first frame of a stream. Message is nil for OpPing.
type Operation struct {
	Type    Type
	Message Message
}

// DecodeOperation reads the first frame of a stream.
func DecodeOperation(t Type, payload []byte) (Operation, error) {
	decode := map[Type]func([]byte) (Message, error){
		OpExec: decodeAs[ExecMessage], OpRead: decodeAs[ReadMessage], OpWrite: decodeAs[WriteMessage], OpList: decodeAs[PathMessage],
		OpStat: decodeAs[PathMessage], OpDelete: decodeAs[DeleteMessage], OpRelay: decodeAs[RelayMessage],
		OpPing: func([]byte) (Message, error) { return nil, nil },
	}[t]
	if decode == nil {
		return Operation{}, fmt.Errorf("%w: %s is not an operation", ErrFormat, t)
	}
	m, err := decode(payload)
	return Operation{Type: t, Message: m}, err
}

func decodeAs[M Message](payload []byte) (Message, error) { return Decode[M](payload) }

// Send writes the operation in its canonical form.
func (op Operation) Send(w *Writer) error {
	if op.Message == nil {
		return w.Send(op.Type, nil)
	}
	return w.SendMessage(op.Type, op.Message)
}

func checkPath(p string) error {
	if p == "" || len(p) > maxPath || hasNUL(p) {
		return fmt.Errorf("path is empty, too long or holds a NUL")
	}
	return nil
}

func hasNUL(s string) bool { return strings.IndexByte(s, 0) >= 0 }
