package guest

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"portreeve.dev/nodes/guest/frame"
)

// Stream is a connection of init's that carries one operation. Close must be called; it gives the stream's place back.
type Stream struct {
	net.Conn
	r       *frame.Reader
	w       *frame.Writer
	session *Session
	once    sync.Once
}

// waiter is an Open that init has not answered yet.
type waiter struct {
	token string
	got   chan *Stream // has room for one
}

// Open asks init for a stream and sends the operation on it.
//
// ErrUnavailable: no init is connected. ErrBusy: Limits.Streams are open. ErrTimeout: init didn't dial in time. Else ctx's error or a HostileError.
func (s *Session) Open(ctx context.Context, op frame.Operation) (*Stream, error) {
	main, id, w, err := s.ask()
	if err != nil {
		return nil, err
	}
	stream, err := s.await(ctx, main, id, w)
	if err != nil {
		return nil, err
	}
	stream.SetWriteDeadline(time.Now().Add(s.cfg.Limits.Answer))
	if err := op.Send(stream.w); err != nil {
		stream.Close()
		return nil, fmt.Errorf("sending %s to init: %w", op.Type, err)
	}
	return stream, nil
}

// ask takes a place and a number for a new stream.
func (s *Session) ask() (main net.Conn, id uint64, w *waiter, err error) {
	token := make([]byte, 16)
	rand.Read(token)
	s.mu.Lock()
	defer s.mu.Unlock()
	var hostile *HostileError
	switch {
	case errors.As(s.ended, &hostile):
		return nil, 0, nil, hostile
	case s.ended != nil, s.main == nil:
		return nil, 0, nil, ErrUnavailable
	case s.slots >= s.cfg.Limits.Streams:
		return nil, 0, nil, ErrBusy
	}
	s.slots++
	s.last++
	w = &waiter{token: hex.EncodeToString(token), got: make(chan *Stream, 1)}
	s.waiting[s.last] = w
	return s.main, s.last, w, nil
}

func (s *Session) await(ctx context.Context, main net.Conn, id uint64, w *waiter) (*Stream, error) {
	err := s.sendOpen(main, frame.OpenMessage{Stream: id, Token: w.token})
	if err == nil {
		timer := time.NewTimer(s.cfg.Limits.Open)
		defer timer.Stop()
		select {
		case stream := <-w.got:
			return stream, nil
		case <-timer.C:
			err = ErrTimeout
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.done:
			err = ErrUnavailable
		}
	}
	s.mu.Lock()
	_, still := s.waiting[id]
	delete(s.waiting, id)
	if still {
		s.slots--
	}
	s.mu.Unlock()
	if !still { // it came in the last moment and took the place over
		(<-w.got).Close()
	}
	return nil, err
}

// sendOpen may leave half a frame behind, so a failed write ends the main connection. A paused init reads nothing,
// yet thousands of Opens fit into its socket before a write waits.
func (s *Session) sendOpen(main net.Conn, open frame.OpenMessage) error {
	s.send.Lock()
	defer s.send.Unlock()
	main.SetWriteDeadline(time.Now().Add(s.cfg.Limits.Opening))
	if err := frame.NewWriter(main).SendMessage(frame.Open, open); err != nil {
		main.Close()
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

// deliver gives conn to the Open that it answers. A number that was given up is no breach: init may have been paused.
func (s *Session) deliver(conn net.Conn, r *frame.Reader, payload []byte) (bool, error) {
	answer, err := frame.Decode[frame.OpenMessage](payload)
	if err != nil {
		return false, err
	}
	conn.SetReadDeadline(time.Time{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return false, nil
	}
	w := s.waiting[answer.Stream]
	if w == nil {
		if answer.Stream > s.last {
			return false, fmt.Errorf("%w: stream %d was never asked for", frame.ErrFormat, answer.Stream)
		}
		return false, nil
	}
	if subtle.ConstantTimeCompare([]byte(w.token), []byte(answer.Token)) != 1 {
		return false, fmt.Errorf("%w: stream %d with a wrong token", frame.ErrFormat, answer.Stream)
	}
	delete(s.waiting, answer.Stream)
	stream := &Stream{Conn: conn, r: r, w: frame.NewWriter(conn), session: s}
	s.held[stream] = true
	w.got <- stream
	return true, nil
}

// Close ends the connection.
func (st *Stream) Close() error {
	err := st.Conn.Close()
	st.once.Do(func() {
		st.session.mu.Lock()
		defer st.session.mu.Unlock()
		delete(st.session.held, st)
		st.session.slots--
	})
	return err
}

// CloseWrite tells init that nothing more will come.
func (st *Stream) CloseWrite() error {
	if c, ok := st.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// hostile counts a breach inside a stream and names the sandbox.
func (st *Stream) hostile(what error) error {
	st.session.strike(what)
	return &HostileError{Sandbox: st.session.cfg.Sandbox, What: what}
}
