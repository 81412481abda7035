package proxy

import (
	"io"
	"log"
	"net"
	"sync"
)

// An inbox is the listener of the HTTP server: connections come to it after they were bound, judged and prepared.
type inbox struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newInbox() *inbox { return &inbox{conns: make(chan net.Conn), done: make(chan struct{})} }

// put hands a connection over; false when the server is gone.
func (b *inbox) put(c net.Conn) bool {
	select {
	case b.conns <- c:
		return true
	case <-b.done:
		return false
	}
}

func (b *inbox) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case <-b.done:
		return nil, net.ErrClosed
	}
}

func (b *inbox) Close() error {
	b.once.Do(func() { close(b.done) })
	return nil
}

func (b *inbox) Addr() net.Addr { return &net.TCPAddr{} }

// discardLog drops what net/http says about broken clients: it is noise that sandboxes can make at will.
func discardLog() *log.Logger { return log.New(io.Discard, "", 0) }
