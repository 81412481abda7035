package frame

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// Version is what Hello carries; the host refuses another one.
const Version = 1

const (
	headerLen = 4
	// MaxPayload is the cap of every frame.
	MaxPayload = 64 << 10
	// MaxOpening caps the first frame of a connection, read before anything is known about the peer.
	MaxOpening = 512
	// StdinWindow is how many bytes of stdin may be on their way; Credit frames give room back. So neither side has to stop
	// reading, and a Signal is never stuck behind input that nobody reads.
	StdinWindow = 256 << 10
)

// Type says what a frame carries. The zero Type is unknown.
type Type uint8

// Opening frames: init's first on its main connection, the host's on it, init's first on a stream.
const Hello, Open, Stream Type = 1, 2, 3

// Operations, sent by the host as the first frame of a stream.
const OpExec, OpRead, OpWrite, OpList, OpStat, OpDelete, OpRelay, OpPing Type = 16, 17, 18, 19, 20, 21, 22, 23

// Frames of a running operation that the host sends. Cancel: the caller is gone, kill what was started, unless it was detached.
const Stdin, StdinClose, Resize, Signal, Cancel Type = 32, 33, 34, 35, 36

// Content of a file, either way, and the end of what was asked for.
const Data, End Type = 48, 49

// Frames of a running operation that init sends.
const Started, Stdout, Stderr, Credit, Exit, Error, Info, Entries, Ready, Pong Type = 64, 65, 66, 67, 68, 69, 70, 71, 72, 73

// kinds holds name and cap of each type; a type without a name is unknown.
var kinds = [256]struct {
	name string
	max  int
}{
	Hello: {"hello", MaxOpening}, Open: {"open", MaxOpening}, Stream: {"stream", MaxOpening},
	OpExec: {"exec", MaxPayload}, OpRead: {"read", 8 << 10}, OpWrite: {"write", 8 << 10}, OpList: {"list", 8 << 10},
	OpStat: {"stat", 8 << 10}, OpDelete: {"delete", 8 << 10}, OpRelay: {"relay", 128}, OpPing: {"ping", 0},
	Stdin: {"stdin", MaxPayload}, StdinClose: {"stdin_close", 0}, Resize: {"resize", 128}, Signal: {"signal", 128},
	Cancel: {"cancel", 0}, Data: {"data", MaxPayload}, End: {"end", 0},
	Started: {"started", 128}, Stdout: {"stdout", MaxPayload}, Stderr: {"stderr", MaxPayload}, Credit: {"credit", 128},
	Exit: {"exit", 128}, Error: {"error", 4 << 10}, Info: {"info", 4 << 10}, Entries: {"entries", MaxPayload},
	Ready: {"ready", 0}, Pong: {"pong", 256},
}

func (t Type) String() string {
	if name := kinds[t].name; name != "" {
		return name
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// ErrFormat is matched by every error that means "the peer broke the format".
var ErrFormat = errors.New("malformed frame")

// Reader reads frames. It reads exactly the bytes of each frame, so that raw bytes may follow.
// It is for one goroutine.
type Reader struct {
	r    io.Reader
	head [headerLen]byte
	buf  []byte
}

// NewReader returns a Reader on r.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next returns the next frame, whose payload is at most limit bytes and stays valid until the following call.
// A connection that ended between frames is io.EOF.
func (r *Reader) Next(limit int) (Type, []byte, error) {
	if _, err := io.ReadFull(r.r, r.head[:]); err != nil {
		return 0, nil, err
	}
	t := Type(r.head[0])
	n := int(r.head[1])<<16 | int(r.head[2])<<8 | int(r.head[3])
	if kinds[t].name == "" {
		return 0, nil, fmt.Errorf("%w: unknown type %d", ErrFormat, uint8(t))
	}
	if n > kinds[t].max || n > limit {
		return 0, nil, fmt.Errorf("%w: %s of %d bytes", ErrFormat, t, n)
	}
	if cap(r.buf) < n {
		r.buf = make([]byte, n)
	}
	payload := r.buf[:n]
	if _, err := io.ReadFull(r.r, payload); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return t, payload, nil
}

// Writer writes frames, each with one Write. It is safe for concurrent use.
type Writer struct {
	mu  sync.Mutex
	w   io.Writer
	buf []byte
}

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Send writes one frame. A payload over the type's cap is an error and nothing is written.
func (w *Writer) Send(t Type, payload []byte) error {
	if kinds[t].name == "" || len(payload) > kinds[t].max {
		return fmt.Errorf("%w: sending %s of %d bytes", ErrFormat, t, len(payload))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(payload)
	w.buf = append(w.buf[:0], byte(t), byte(n>>16), byte(n>>8), byte(n))
	w.buf = append(w.buf, payload...)
	_, err := w.w.Write(w.buf)
	return err
}

// SendMessage writes m as one control frame.
func (w *Writer) SendMessage(t Type, m Message) error {
	payload, err := Encode(m)
	if err != nil {
		return err
	}
	return w.Send(t, payload)
}
