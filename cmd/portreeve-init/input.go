package main

import (
	"sync"

	"portreeve.dev/nodes/guest/frame"
)

// input holds stdin that has arrived and not yet been written, at most one window.
type input struct {
	mu     sync.Mutex
	change sync.Cond
	buf    []byte
	closed bool
}

func newInput() *input {
	in := &input{}
	in.change.L = &in.mu
	return in
}

// add never blocks: a host that sends more than it has credit for breaks the protocol.
func (in *input) add(data []byte) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed || len(in.buf)+len(data) > frame.StdinWindow {
		return fault(frame.CodeBadRequest, "stdin outside its window")
	}
	in.buf = append(in.buf, data...)
	in.change.Signal()
	return nil
}

func (in *input) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.closed = true
	in.change.Signal()
}

// take waits for bytes. more is false once all was taken and no more will come.
func (in *input) take(buf []byte) (n int, more bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for len(in.buf) == 0 && !in.closed {
		in.change.Wait()
	}
	n = copy(buf, in.buf)
	in.buf = append(in.buf[:0], in.buf[n:]...)
	return n, len(in.buf) > 0 || !in.closed
}
