package resolver

import (
	"context"

	"portreeve.dev/egress"
)

// MessageForTest answers one message without a socket.
func (s *Server) MessageForTest(b egress.Binding, wire []byte, udp bool) []byte {
	return s.message(context.Background(), b, s.box(b), wire, udp)
}
