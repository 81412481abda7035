package egress

import (
	"net"
	"sync"
)

// An Inbox is the listener of an HTTP server whose connections somebody else accepted, judged and prepared. Make it with NewInbox.
type Inbox struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// NewInbox returns an open Inbox. A connection is taken as soon as the server accepts; none waits inside.
func NewInbox() *Inbox { return &Inbox{conns: make(chan net.Conn), done: make(chan struct{})} }

// Put hands a connection over; false when the inbox is closed, and the connection still the caller's.
func (b *Inbox) Put(c net.Conn) bool {
	select {
	case b.conns <- c:
		return true
	case <-b.done:
		return false
	}
}

// Accept waits for a connection. It fails with net.ErrClosed once the inbox is closed, and never else.
func (b *Inbox) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case <-b.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Put.
func (b *Inbox) Close() error {
	b.once.Do(func() { close(b.done) })
	return nil
}

// Addr is no address: its connections come from several listeners.
func (b *Inbox) Addr() net.Addr { return &net.TCPAddr{} }
