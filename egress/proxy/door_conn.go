package proxy

import (
	"crypto/tls"
	"net"
	"sync/atomic"
)

// plainConn returns nc as the rest of the package may handle it: what lies below a connection of TLS must not be found, or
// bytes would be moved past it.
func plainConn(nc net.Conn) net.Conn {
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		return nc
	}
	return &sealedConn{Conn: nc}
}

// A sealedConn hides what a connection is made of.
type sealedConn struct {
	net.Conn
	abort atomic.Bool
}

// CloseWrite ends our side, if the connection can.
func (s *sealedConn) CloseWrite() error {
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return s.Conn.Close()
}

// Close closes the connection; after abort without saying goodbye, so that the client doesn't take it for a whole answer.
func (s *sealedConn) Close() error {
	if c, ok := s.Conn.(*tls.Conn); ok && s.abort.Load() {
		if t, ok := c.NetConn().(*net.TCPConn); ok {
			_ = t.SetLinger(0)
		}
		return c.NetConn().Close()
	}
	return s.Conn.Close()
}

// bottom is the connection as it was accepted.
func bottom(nc net.Conn) net.Conn {
	for {
		inner, ok := nc.(interface{ NetConn() net.Conn })
		if !ok {
			return nc
		}
		nc = inner.NetConn()
	}
}
