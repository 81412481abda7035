package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"portreeve.dev/nodes/guest/frame"
)

// Relay returns a connection to a port on the sandbox's own loopback, for applications that listen nowhere else.
// ErrRefused: nothing listens there. The connection has CloseWrite.
func (s *Session) Relay(ctx context.Context, port uint16) (net.Conn, error) {
	stream, _, err := s.first(ctx, frame.Operation{Type: frame.OpRelay, Message: frame.RelayMessage{Port: port}})
	if err != nil {
		return nil, err
	}
	stream.SetDeadline(time.Time{})
	return stream, nil
}

// Ping measures whether init answers, and returns what it knows about its sandbox.
func (s *Session) Ping(ctx context.Context) (frame.PongMessage, error) {
	stream, payload, err := s.first(ctx, frame.Operation{Type: frame.OpPing})
	if err != nil {
		return frame.PongMessage{}, err
	}
	defer stream.Close()
	return frame.Decode[frame.PongMessage](payload)
}

// first opens a stream for an operation that is answered by one frame, and returns that frame.
func (s *Session) first(ctx context.Context, op frame.Operation) (*Stream, []byte, error) {
	stream, err := s.Open(ctx, op)
	if err != nil {
		return nil, nil, err
	}
	stop := context.AfterFunc(ctx, func() { stream.Conn.Close() })
	payload, err := stream.answer(op)
	if !stop() && err == nil { // ctx ended between the answer and here, the connection is closed
		err = ctx.Err()
	}
	if err != nil {
		stream.Close()
		return nil, nil, err
	}
	return stream, payload, nil
}

func (st *Stream) answer(op frame.Operation) ([]byte, error) {
	st.SetReadDeadline(time.Now().Add(st.session.cfg.Limits.Answer))
	t, payload, err := st.r.Next(frame.MaxPayload)
	if err == nil {
		payload, err = newExchange(op).fromInit(t, payload)
	}
	switch {
	case errors.Is(err, frame.ErrFormat):
		return nil, st.hostile(err)
	case isTimeout(err):
		return nil, fmt.Errorf("%w: %w", ErrTimeout, err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	case t == frame.Error:
		return nil, operationError(payload)
	}
	return payload, nil
}
