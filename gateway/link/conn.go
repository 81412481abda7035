package link

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// DefaultFrame is the largest frame that a Conn reads unless its Limits say otherwise: 32 MiB, enough for the policies
// of many orgs in one message.
const DefaultFrame = 32 << 20

// Limits bound what a peer can make us hold. The zero value means the defaults.
type Limits struct {
	Frame int // bytes of one frame; default DefaultFrame
	Calls int // calls of the peer that run at once; default 256
	// Write is how long a frame may take to be taken; default 30 s. A peer that doesn't read for so long is given up: the
	// supervisor links the two anew.
	Write time.Duration
}

// A Conn is one end of a link. Its methods are safe for concurrent use.
type Conn struct {
	socket *net.UnixConn
	mux    *Mux
	limits Limits

	writing sync.Mutex // one frame at a time

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]chan *message
	closed  bool

	calls chan struct{}
	done  sync.WaitGroup
	ended chan struct{} // closed when the peer is gone
}

// NewConn returns a Conn over socket, which it owns from then on. mux answers the peer's calls and may be nil.
func NewConn(socket *net.UnixConn, mux *Mux, limits Limits) *Conn {
	if limits.Frame == 0 {
		limits.Frame = DefaultFrame
	}
	if limits.Calls == 0 {
		limits.Calls = 256
	}
	if limits.Write == 0 {
		limits.Write = 30 * time.Second
	}
	if mux == nil {
		mux = NewMux()
	}
	return &Conn{socket: socket, mux: mux, limits: limits,
		waiting: make(map[uint64]chan *message), calls: make(chan struct{}, limits.Calls), ended: make(chan struct{})}
}

// Run reads until the peer is gone or ctx ends, and returns why; io.EOF is a peer that closed. It waits for the
// handlers that are still running.
func (c *Conn) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(ctx, func() { c.socket.Close() })
	defer stop()
	err := c.read(ctx)
	cancel()
	c.socket.Close()
	c.fail()
	close(c.ended)
	c.done.Wait()
	return err
}

func (c *Conn) read(ctx context.Context) error {
	for {
		m, err := readFrame(c.socket, c.limits.Frame)
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return err
		}
		if m.Reply {
			c.deliver(m)
			continue
		}
		if m.ID == 0 { // notices keep their order
			c.answer(ctx, m)
			continue
		}
		c.calls <- struct{}{} // a peer over its share waits in its own socket buffer
		c.done.Add(1)
		go c.answerCall(ctx, m)
	}
}

func (c *Conn) answerCall(ctx context.Context, m *message) {
	defer c.done.Done()
	defer func() { <-c.calls }()
	c.answer(ctx, m)
}

func (c *Conn) answer(ctx context.Context, m *message) {
	out, files, err := c.mux.serve(ctx, m)
	if m.ID == 0 {
		closeAll(files)
		return
	}
	reply := &message{ID: m.ID, Reply: true, files: files}
	if err == nil {
		reply.Body, err = json.Marshal(out)
	}
	if err != nil {
		reply.Error = asError(err)
	}
	c.send(reply)
	closeAll(files)
}

func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return &Error{Code: e.Code, Message: err.Error()}
	}
	return &Error{Code: "internal", Message: err.Error()}
}

func (c *Conn) deliver(m *message) {
	c.mu.Lock()
	wait, ok := c.waiting[m.ID]
	delete(c.waiting, m.ID)
	c.mu.Unlock()
	if !ok {
		closeAll(m.files)
		return
	}
	wait <- m
}

func (c *Conn) fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for id, wait := range c.waiting {
		delete(c.waiting, id)
		close(wait)
	}
}

func (c *Conn) send(m *message) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.socket.SetWriteDeadline(time.Now().Add(c.limits.Write)); err != nil {
		return err
	}
	err := writeFrame(c.socket, m)
	if err != nil {
		c.socket.Close() // half a frame is no frame: nothing can follow it
	}
	return err
}

// Call sends in and waits for the answer, which it decodes into out (nil drops it). Files are sent along and stay the
// caller's. An answer's files are closed: use CallFiles to get them. It fails with *Error when the peer refused, with
// ErrClosed when it is gone, with ctx's error when that ended first.
func (c *Conn) Call(ctx context.Context, method string, in, out any, files ...*os.File) error {
	got, err := c.CallFiles(ctx, method, in, out, files...)
	closeAll(got)
	return err
}

// CallFiles is Call that returns the answer's files; the caller owns them.
func (c *Conn) CallFiles(ctx context.Context, method string, in, out any, files ...*os.File) ([]*os.File, error) {
	body, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("calling %q: %w", method, err)
	}
	id, wait, err := c.register()
	if err != nil {
		return nil, fmt.Errorf("calling %q: %w", method, err)
	}
	if err := c.send(&message{ID: id, Method: method, Body: body, files: files}); err != nil {
		c.forget(id)
		return nil, fmt.Errorf("calling %q: %w", method, ErrClosed)
	}
	select {
	case <-ctx.Done():
		c.forget(id)
		return nil, fmt.Errorf("calling %q: %w", method, ctx.Err())
	case m, ok := <-wait:
		if !ok {
			return nil, fmt.Errorf("calling %q: %w", method, ErrClosed)
		}
		return m.files, decodeReply(method, m, out)
	}
}

func decodeReply(method string, m *message, out any) error {
	if m.Error != nil {
		return m.Error
	}
	if out == nil {
		return nil
	}
	if err := strictly(m.Body, out); err != nil {
		return fmt.Errorf("reading the answer to %q: %w", method, err)
	}
	return nil
}

func (c *Conn) register() (uint64, chan *message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, nil, ErrClosed
	}
	c.next++
	wait := make(chan *message, 1)
	c.waiting[c.next] = wait
	return c.next, wait, nil
}

// forget gives up on a call; an answer that is already there is dropped with its files.
func (c *Conn) forget(id uint64) {
	c.mu.Lock()
	wait := c.waiting[id]
	delete(c.waiting, id)
	c.mu.Unlock()
	if wait == nil {
		return
	}
	select {
	case m := <-wait:
		if m != nil {
			closeAll(m.files)
		}
	default:
	}
}

// Notify sends in without waiting for anything but the socket buffer: what it returned nil for outlives this process.
func (c *Conn) Notify(method string, in any, files ...*os.File) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("notifying %q: %w", method, err)
	}
	if err := c.send(&message{Method: method, Body: body, files: files}); err != nil {
		return fmt.Errorf("notifying %q: %w", method, ErrClosed)
	}
	return nil
}

// Ended is closed when the peer is gone: Run has stopped reading, and every call fails.
func (c *Conn) Ended() <-chan struct{} { return c.ended }

// Close ends the connection; Run returns.
func (c *Conn) Close() error { return c.socket.Close() }

// strictly decodes exactly one JSON value without unknown fields.
func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one value")
	}
	return nil
}
