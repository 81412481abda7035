package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// noResolver is given to every net.Dialer here: a name that reached one would be a bug, and gets no answer.
var noResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("names are not looked up here")
}}

// minTry is the least time that one address of several gets.
const minTry = 2 * time.Second

// connect opens a TCP connection to exactly addr, which was judged, from the address source unless that is the zero Addr. check is
// asked again by the socket itself, just before connect(2), with the address that the kernel will be given.
func connect(ctx context.Context, source netip.Addr, addr netip.AddrPort, check func(netip.AddrPort) error) (net.Conn, error) {
	d := &net.Dialer{Resolver: noResolver, FallbackDelay: -1, Control: func(_, address string, raw syscall.RawConn) error {
		got, err := netip.ParseAddrPort(address)
		if err != nil || got != addr {
			return fmt.Errorf("the socket is about to connect to %q, judged was %v", address, addr)
		}
		if source.IsValid() {
			if err := portLater(raw); err != nil {
				return err
			}
		}
		return check(got)
	}}
	if source.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	d.SetMultipathTCP(false)
	network := "tcp4"
	if addr.Addr().Is6() {
		network = "tcp6"
	}
	c, err := d.DialContext(ctx, network, addr.String())
	if err != nil {
		return nil, err
	}
	return c, errors.Join(sameRemote(c, addr), sameSource(c, source))
}

// share is the part of the time left that one of n remaining addresses may use.
func share(ctx context.Context, n int) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return minTry
	}
	return max(minTry, time.Until(deadline)/time.Duration(n))
}
