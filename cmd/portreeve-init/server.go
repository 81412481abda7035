package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"portreeve.dev/nodes/guest/frame"
)

const (
	firstBackoff = 20 * time.Millisecond
	lastBackoff  = time.Second
	firstFrame   = 10 * time.Second // for the operation to arrive on a new stream
	lingerTime   = 2 * time.Second  // for the host to take the last frame
)

// server holds what all streams share.
type server struct {
	boot     string
	table    *table
	slots    chan struct{} // one taken by each stream that has a connection
	defaults map[string]string
}

// serve keeps a main connection to the host, for ever.
func (s *server) serve() {
	backoff := firstBackoff
	for {
		conn, err := dial()
		if err == nil {
			backoff = firstBackoff
			s.follow(conn)
			conn.Close()
		}
		time.Sleep(backoff)
		backoff = min(2*backoff, lastBackoff)
	}
}

// follow says hello and serves Open frames until the connection ends.
func (s *server) follow(conn *net.UnixConn) {
	hello := frame.HelloMessage{Version: frame.Version, PID: os.Getpid(), BootID: s.boot}
	if err := frame.NewWriter(conn).SendMessage(frame.Hello, hello); err != nil {
		return
	}
	r := frame.NewReader(waking{conn})
	for {
		t, payload, err := r.Next(frame.MaxOpening)
		if err != nil {
			return
		}
		open, err := frame.Decode[frame.OpenMessage](payload)
		if t != frame.Open || err != nil {
			log.Printf("main connection: unexpected %s: %v", t, err)
			return
		}
		select {
		case s.slots <- struct{}{}:
			go s.stream(open)
		default: // the host counts too, and lower
			log.Printf("stream %d dropped: %d are open", open.Stream, maxStreams)
		}
	}
}

// waking looks at its connection now and then: a checkpoint that leaves the sandbox running ends the connection, and wakes
// nobody who waits at it.
type waking struct{ *net.UnixConn }

func (w waking) Read(p []byte) (n int, err error) {
	for err = os.ErrDeadlineExceeded; errors.Is(err, os.ErrDeadlineExceeded); n, err = w.UnixConn.Read(p) {
		w.SetReadDeadline(time.Now().Add(2 * time.Second))
	}
	return n, err
}

// dial retries while the host's queue is full, which connect reports as EAGAIN at once.
func dial() (*net.UnixConn, error) {
	for try := 0; ; try++ {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socketPath, Net: "unix"})
		if err == nil || try == 50 || !errors.Is(err, syscall.EAGAIN) {
			return conn, err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// stream is one operation on a connection of its own.
type stream struct {
	*server
	conn    *net.UnixConn
	r       *frame.Reader
	w       *frame.Writer
	release func() // gives the slot back: at the end, or when an exec lost its host
}

// stream dials for one Open and runs the operation that the host then sends. A bug in one operation must not end the sandbox.
func (s *server) stream(open frame.OpenMessage) {
	st := &stream{server: s, release: sync.OnceFunc(func() { <-s.slots })}
	defer st.release()
	defer func() {
		if r := recover(); r != nil {
			log.Printf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	conn, err := dial()
	if err != nil {
		return
	}
	defer conn.Close()
	st.conn, st.r, st.w = conn, frame.NewReader(conn), frame.NewWriter(conn)
	if err := st.w.SendMessage(frame.Stream, open); err != nil {
		return
	}
	conn.SetReadDeadline(time.Now().Add(firstFrame))
	t, payload, err := st.r.Next(frame.MaxPayload)
	if err != nil {
		return
	}
	conn.SetReadDeadline(time.Time{})
	op, err := frame.DecodeOperation(t, payload)
	if err != nil {
		st.fail(fault(frame.CodeBadRequest, "%v", err))
		return
	}
	st.perform(op)
}

func (st *stream) perform(op frame.Operation) {
	switch m := op.Message.(type) {
	case nil: // OpPing
		st.w.SendMessage(frame.Pong, frame.PongMessage{Processes: len(pids()), Streams: len(st.slots)})
		st.finish()
	case frame.ExecMessage:
		st.exec(m)
	case frame.RelayMessage:
		st.relay(m)
	default:
		st.files(op)
	}
}

// failure is an error that the caller gets to know.
type failure struct{ frame.ErrorMessage }

func (f *failure) Error() string { return string(f.Code) + ": " + f.Message }

func fault(code frame.Code, format string, args ...any) *failure {
	return &failure{frame.NewError(code, fmt.Sprintf(format, args...))}
}

// fail ends the operation with an Error frame.
func (st *stream) fail(err error) {
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = fault(frame.CodeInternal, "%v", err)
	}
	st.w.SendMessage(frame.Error, f.ErrorMessage)
	st.finish()
}

// finish waits until the host has read the last frame: closing over unread input would cut it off.
func (st *stream) finish() {
	st.conn.CloseWrite()
	st.conn.SetReadDeadline(time.Now().Add(lingerTime))
	io.Copy(io.Discard, st.conn)
	st.conn.Close()
}
