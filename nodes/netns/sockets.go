package netns

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Where the firewall steers TCP, and port 53 of both protocols.
const (
	ProxyPort = 15001
	DNSPort   = 53

	backlog    = 4096
	queueBytes = 8 << 20 // one socket takes every sandbox's queries: one sandbox's burst must not fill it
)

// Sockets are the listening sockets of the edge netns. They are the only copies: when they and those that were
// handed on are closed, connects are refused at once. A copy that is kept lets connects hang instead.
type Sockets struct {
	Proxy     *os.File // TCP; local address of an accepted connection = original destination
	DNSStream *os.File // TCP 53
	DNSPacket *os.File // UDP 53; IP_PKTINFO tells the address that was asked
}

// Close closes all.
func (s *Sockets) Close() {
	for _, f := range []*os.File{s.Proxy, s.DNSStream, s.DNSPacket} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// Sockets makes the three sockets inside the edge netns. IP_TRANSPARENT needs a capability now, and none later.
func (e *Edge) Sockets() (*Sockets, error) {
	s := &Sockets{}
	err := e.Do(func() (err error) {
		if s.Proxy, err = listen(unix.SOCK_STREAM, ProxyPort); err != nil {
			return err
		}
		if s.DNSStream, err = listen(unix.SOCK_STREAM, DNSPort); err != nil {
			return err
		}
		s.DNSPacket, err = listen(unix.SOCK_DGRAM, DNSPort)
		return err
	})
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("listening in edge netns %q: %w", e.Name, err)
	}
	return s, nil
}

// listen makes one socket by hand rather than by package net: no MPTCP, no duplicate to close.
// It is bound to 127.0.0.1, which no packet from a link can name: only the firewall leads there.
func listen(kind, port int) (*os.File, error) {
	what := fmt.Sprintf("tcp 127.0.0.1:%d", port)
	if kind == unix.SOCK_DGRAM {
		what = fmt.Sprintf("udp 127.0.0.1:%d", port)
	}
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	f := os.NewFile(uintptr(fd), what)
	set := func(level, opt, value int) {
		if err == nil {
			err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, opt, value))
		}
	}
	set(unix.SOL_IP, unix.IP_TRANSPARENT, 1)
	if kind == unix.SOCK_DGRAM {
		set(unix.SOL_IP, unix.IP_PKTINFO, 1)
		set(unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, queueBytes)
	} else {
		set(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // connections of an earlier edge may still be in TIME_WAIT
	}
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}))
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = os.NewSyscallError("listen", unix.Listen(fd, backlog))
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	return f, nil
}
