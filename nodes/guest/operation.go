package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"portreeve.dev/nodes/guest/frame"
)

// ServeOperation joins one operation of control's, which arrives on conn, with a stream of the session's. It closes conn.
//
// Both directions are decoded, checked for order and bounds, and encoded anew: no byte that init chose reaches control outside of
// a well-formed frame. If the caller is gone before the end, the operation is cancelled in the sandbox; if this process
// is gone, it isn't. The returned error is for the log; the caller got its code already.
func ServeOperation(ctx context.Context, conn net.Conn, s *Session) error {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()

	caller := frame.NewReader(conn)
	conn.SetReadDeadline(time.Now().Add(s.cfg.Limits.Opening))
	t, payload, err := caller.Next(frame.MaxPayload)
	if err != nil {
		return fmt.Errorf("reading an operation: %w", err)
	}
	conn.SetReadDeadline(time.Time{})
	out := frame.NewWriter(conn)
	op, err := frame.DecodeOperation(t, payload)
	if err != nil || t == frame.OpRelay {
		out.SendMessage(frame.Error, frame.NewError(frame.CodeBadRequest, "not an operation"))
		return fmt.Errorf("operation %s of the caller: %w", t, errors.Join(err, ErrBadRequest))
	}
	stream, err := s.Open(ctx, op)
	if err != nil {
		out.SendMessage(frame.Error, frame.NewError(codeOf(err), ""))
		return err
	}
	defer stream.Close()
	j := &join{exchange: newExchange(op), stream: stream, caller: caller, out: out}
	return j.run(ctx, conn)
}

// join relays the frames of one operation.
type join struct {
	*exchange
	stream *Stream
	caller *frame.Reader
	out    *frame.Writer
}

func (j *join) run(ctx context.Context, conn net.Conn) error {
	inwards := make(chan error, 1)
	go func() {
		inwards <- j.inwards(ctx)
	}()
	err := j.outwards()
	conn.Close() // ends inwards
	if first := <-inwards; errors.Is(err, net.ErrClosed) {
		return first
	}
	return err
}

// outwards carries init's frames to control until the last one of the operation.
func (j *join) outwards() error {
	answer := j.stream.session.cfg.Limits.Answer
	j.stream.SetReadDeadline(time.Now().Add(answer))
	for !j.isOver() {
		t, payload, err := j.stream.r.Next(frame.MaxPayload)
		if err == nil {
			payload, err = j.fromInit(t, payload)
		}
		if err != nil {
			return j.refuse(err)
		}
		switch {
		case !j.endless():
			j.stream.SetReadDeadline(time.Now().Add(answer))
		case t == frame.Started, t == frame.Ready:
			j.stream.SetReadDeadline(time.Time{})
		}
		if err := j.out.Send(t, payload); err != nil {
			return fmt.Errorf("caller of %s: %w", j.op, err)
		}
	}
	return nil
}

// endless: a process may be silent for as long as it likes once it has started, and a write waits for its caller until End.
// Everything else answers within Limits.Answer, frame by frame.
func (j *join) endless() bool { return j.op == frame.OpExec || j.op == frame.OpWrite }

// refuse tells the caller what kind of failure ended init's half.
func (j *join) refuse(err error) error {
	if errors.Is(err, frame.ErrFormat) {
		err = j.stream.hostile(err)
	} else if isTimeout(err) {
		err = fmt.Errorf("%w: %w", ErrTimeout, err)
	}
	j.out.SendMessage(frame.Error, frame.NewError(codeOf(err), ""))
	return fmt.Errorf("%s in the sandbox: %w", j.op, err)
}

// inwards carries the caller's frames to init. When the caller goes away, init hears Cancel before the stream ends.
// When it is we who go, the process is left alone.
func (j *join) inwards(ctx context.Context) error {
	for {
		t, payload, err := j.caller.Next(frame.MaxPayload)
		if err == nil {
			payload, err = j.fromHost(t, payload)
		}
		j.stream.SetWriteDeadline(time.Now().Add(j.stream.session.cfg.Limits.Answer))
		if err != nil {
			if j.op == frame.OpExec && ctx.Err() == nil {
				j.stream.w.Send(frame.Cancel, nil)
			}
			j.stream.Close() // ends outwards, if it still waits for init
			return fmt.Errorf("caller of %s: %w", j.op, err)
		}
		if err := j.stream.w.Send(t, payload); err != nil {
			// init may have said why, or that it is done, before it stopped reading.
			j.stream.SetReadDeadline(time.Now().Add(j.stream.session.cfg.Limits.Opening))
			return fmt.Errorf("%s in the sandbox: %w", j.op, err)
		}
		if j.op == frame.OpWrite && t == frame.End {
			j.stream.SetReadDeadline(time.Now().Add(j.stream.session.cfg.Limits.Answer))
		}
	}
}
