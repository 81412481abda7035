package front

import (
	"net"
	"sync"
)

// A slot is an accepted connection; closing it makes room for another.
type slot struct {
	net.Conn
	free func()
	once sync.Once
}

func (s *slot) Close() error {
	err := s.Conn.Close()
	s.once.Do(s.free)
	return err
}

// CloseWrite sends FIN.
func (s *slot) CloseWrite() error {
	if c, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
