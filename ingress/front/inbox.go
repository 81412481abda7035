package front

import (
	"net"
	"sync"
)

// An inbox is the listener of the HTTP server: connections come to it after they were prepared.
type inbox struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newInbox() *inbox { return &inbox{conns: make(chan net.Conn), done: make(chan struct{})} }

// put hands a connection over, or closes it when the server is gone.
func (b *inbox) put(c net.Conn) {
	select {
	case b.conns <- c:
	case <-b.done:
		c.Close()
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
