package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// A sourceError says that a connection could not leave from where it must.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }

// connect opens a connection to a from the way's source for its family. There is no other source in its place.
func (w Way) connect(ctx context.Context, a netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	source, err := w.source(a.Addr())
	if err != nil {
		return nil, err
	}
	c, err := connect(ctx, source, a, check)
	var call *os.SyscallError
	if source.IsValid() && errors.As(err, &call) && call.Syscall == "bind" {
		return nil, &sourceError{err}
	}
	return c, err
}

// source is where a connection to a leaves from; the zero Addr leaves it to the kernel.
func (w Way) source(a netip.Addr) (netip.Addr, error) {
	if len(w.Sources) == 0 {
		return netip.Addr{}, nil
	}
	for _, s := range w.Sources {
		if s.Is4() == a.Is4() {
			return s, nil
		}
	}
	return netip.Addr{}, &sourceError{fmt.Errorf("none of the org's source addresses is of the family of %v", a)}
}

// portLater has the kernel choose the port when it knows the target (IP_BIND_ADDRESS_NO_PORT): else a source has as many connections
// as there are ports, whatever their targets.
func portLater(raw syscall.RawConn) (err error) {
	const bindAddressNoPort = 24
	cerr := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_IP, bindAddressNoPort, 1) })
	return errors.Join(cerr, err)
}

// sameSource is sameRemote for the other end.
func sameSource(c net.Conn, want netip.Addr) error {
	if !want.IsValid() {
		return nil
	}
	got, ok := c.LocalAddr().(*net.TCPAddr)
	if ok && got.AddrPort().Addr().Unmap() == want {
		return nil
	}
	c.Close()
	return &sourceError{fmt.Errorf("connected from %v, the org's source is %v", c.LocalAddr(), want)}
}
