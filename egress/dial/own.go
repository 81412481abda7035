package dial

import (
	"net"
	"net/netip"
)

// own reports whether addr is one of this machine's own addresses, whatever the floor knows of them: the kernel then chooses
// it as the source of what goes there. Nothing is sent, and the answer is never older than the question.
func own(addr netip.Addr) bool {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 9)))
	if err != nil {
		return false // no route leads there
	}
	defer c.Close()
	local, ok := c.LocalAddr().(*net.UDPAddr)
	return ok && local.AddrPort().Addr().Unmap() == addr.Unmap()
}
