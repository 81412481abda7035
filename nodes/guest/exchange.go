package guest

import (
	"errors"
	"fmt"
	"sync/atomic"

	"portreeve.dev/nodes/guest/frame"
)

// exchange is the order of frames of one operation. Inward and control each keep one: neither believes the other end.
//
//	init:  expect first frame --Started, Info, Ready--> running --Exit, End, Info, Error--> over
//
// The methods fromInit and fromHost are each for one goroutine, and both may run at once.
type exchange struct {
	op     frame.Type
	input  bool // exec: Stdin frames are in order
	tty    bool
	window atomic.Int64 // stdin bytes without credit

	// owned by fromInit
	running bool
	over    bool
	left    int64 // bytes of the file, or entries, that may still come

	// owned by fromHost
	closed  bool // no more Stdin or Data
	written int64
}

func newExchange(op frame.Operation) *exchange {
	e := &exchange{op: op.Type}
	switch m := op.Message.(type) {
	case frame.ExecMessage:
		e.input, e.tty = m.HasInput(), m.TTY != nil
	case frame.ReadMessage:
		e.left = m.Max
	case frame.PathMessage:
		e.left = frame.MaxEntries
	}
	return e
}

var errOrder = fmt.Errorf("%w: out of order", frame.ErrFormat)

// fromInit checks one frame of init's and returns its payload in canonical form. After an error the stream is of no use.
func (e *exchange) fromInit(t frame.Type, payload []byte) ([]byte, error) {
	if e.over {
		return nil, fmt.Errorf("%w: %s after the last frame", errOrder, t)
	}
	if t == frame.Error {
		e.over = true
		return canonical[frame.ErrorMessage](payload)
	}
	switch e.op {
	case frame.OpExec:
		return e.execFrame(t, payload)
	case frame.OpRead:
		return e.readFrame(t, payload)
	case frame.OpList:
		return e.listFrame(t, payload)
	case frame.OpWrite:
		if t == frame.Ready && !e.running {
			e.running = true
			return nil, nil
		}
		if t == frame.Info && e.running {
			e.over = true
			return canonical[frame.InfoMessage](payload)
		}
	case frame.OpStat:
		if t == frame.Info {
			e.over = true
			return canonical[frame.InfoMessage](payload)
		}
	case frame.OpDelete:
		if t == frame.End {
			e.over = true
			return nil, nil
		}
	case frame.OpRelay:
		if t == frame.Ready {
			e.over = true
			return nil, nil
		}
	case frame.OpPing:
		if t == frame.Pong {
			e.over = true
			return canonical[frame.PongMessage](payload)
		}
	}
	return nil, fmt.Errorf("%w: %s in %s", errOrder, t, e.op)
}

func (e *exchange) execFrame(t frame.Type, payload []byte) ([]byte, error) {
	switch {
	case t == frame.Started && !e.running:
		e.running = true
		return canonical[frame.StartedMessage](payload)
	case !e.running:
	case t == frame.Stdout, t == frame.Stderr && !e.tty:
		if len(payload) == 0 {
			return nil, fmt.Errorf("%w: empty %s", frame.ErrFormat, t)
		}
		return payload, nil
	case t == frame.Credit:
		m, err := frame.Decode[frame.CreditMessage](payload)
		if err != nil {
			return nil, err
		}
		if e.window.Add(-int64(m.Bytes)) < 0 {
			return nil, fmt.Errorf("%w: credit for what was never sent", frame.ErrFormat)
		}
		return frame.Encode(m)
	case t == frame.Exit:
		e.over = true
		return canonical[frame.ExitMessage](payload)
	}
	return nil, fmt.Errorf("%w: %s in exec", errOrder, t)
}

func (e *exchange) readFrame(t frame.Type, payload []byte) ([]byte, error) {
	switch {
	case t == frame.Info && !e.running:
		e.running = true
		return canonical[frame.InfoMessage](payload)
	case !e.running:
	case t == frame.Data && len(payload) > 0:
		if e.left -= int64(len(payload)); e.left < 0 {
			return nil, fmt.Errorf("%w: more bytes than asked for", frame.ErrFormat)
		}
		return payload, nil
	case t == frame.End:
		e.over = true
		return nil, nil
	}
	return nil, fmt.Errorf("%w: %s in read", errOrder, t)
}

func (e *exchange) listFrame(t frame.Type, payload []byte) ([]byte, error) {
	switch t {
	case frame.Entries:
		m, err := frame.Decode[frame.EntriesMessage](payload)
		if err != nil {
			return nil, err
		}
		if e.left -= int64(len(m)); e.left < 0 {
			return nil, fmt.Errorf("%w: more entries than there may be", frame.ErrFormat)
		}
		return frame.Encode(m)
	case frame.End:
		e.over = true
		return nil, nil
	}
	return nil, fmt.Errorf("%w: %s in list", errOrder, t)
}

// fromHost checks one frame towards init and returns its payload in canonical form.
func (e *exchange) fromHost(t frame.Type, payload []byte) ([]byte, error) {
	switch e.op {
	case frame.OpExec:
		switch {
		case t == frame.Cancel:
			return nil, nil
		case t == frame.Signal:
			return canonical[frame.SignalMessage](payload)
		case t == frame.Resize && e.tty:
			return canonical[frame.Size](payload)
		case t == frame.StdinClose && e.input && !e.closed:
			e.closed = true
			return nil, nil
		case t == frame.Stdin && e.input && !e.closed && len(payload) > 0:
			if e.window.Add(int64(len(payload))) > frame.StdinWindow {
				return nil, fmt.Errorf("%w: stdin over its window", frame.ErrFormat)
			}
			return payload, nil
		}
	case frame.OpWrite:
		switch {
		case t == frame.Data && !e.closed && len(payload) > 0:
			if e.written += int64(len(payload)); e.written > frame.MaxFile {
				return nil, fmt.Errorf("%w: file over %d bytes", frame.ErrFormat, frame.MaxFile)
			}
			return payload, nil
		case t == frame.End && !e.closed:
			e.closed = true
			return nil, nil
		}
	}
	return nil, fmt.Errorf("%w: %s of the caller's in %s", errOrder, t, e.op)
}

// isOver reports whether the last frame of init's was seen.
func (e *exchange) isOver() bool { return e.over }

func canonical[M frame.Message](payload []byte) ([]byte, error) {
	m, err := frame.Decode[M](payload)
	if err != nil {
		return nil, err
	}
	out, err := frame.Encode(m)
	if err == nil && len(out) > frame.MaxPayload {
		err = errors.New("message grows over its cap")
	}
	return out, err
}
