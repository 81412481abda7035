package link

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Pair returns the two ends of a new stream socket pair, closed on exec.
func Pair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "link"), os.NewFile(uintptr(fds[1]), "link"), nil
}

// Socket turns a passed file into a connection and closes the file.
func Socket(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("opening a passed socket: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("opening a passed socket: it is a %s socket, not a unix one", c.LocalAddr().Network())
	}
	return u, nil
}
