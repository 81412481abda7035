package processtest

import (
	"net"
	"testing"

	"portreeve.dev/gateway/link"
)

// Pair returns both ends of a new socket pair.
func Pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fa, fb, err := link.Pair()
	if err != nil {
		t.Fatal(err)
	}
	if a, err = link.Socket(fa); err != nil {
		t.Fatal(err)
	}
	if b, err = link.Socket(fb); err != nil {
		t.Fatal(err)
	}
	return a, b
}
