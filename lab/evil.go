package lab

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A Contact is something that reached evil.test.
type Contact struct {
	At    time.Time
	From  string
	To    netip.AddrPort
	Proto string // tcp or udp
	Bytes string // the first ones that arrived
}

// Evil is evil.test, which no sandbox of any test may reach. It takes whatever comes, so that a leak shows as more
// than an unanswered opening. The capture sees what arrives on other ports.
type Evil struct {
	Addr  netip.Addr
	Addr6 netip.Addr
	group

	seen     sync.Mutex
	contacts []Contact
}

var (
	evilTCP = []uint16{22, 25, 53, 80, 443, 5432, 8080}
	evilUDP = []uint16{53, 123, 443, 5353}
)

func startEvil(ns *Namespace, ca *CA) (*Evil, error) {
	e := &Evil{Addr: evilAddr, Addr6: evilAddr6}
	config, err := ca.server("evil.test")
	if err != nil {
		return nil, err
	}
	for _, addr := range []netip.Addr{evilAddr, evilAddr6} {
		for _, port := range evilTCP {
			at := netip.AddrPortFrom(addr, port)
			err = errors.Join(err, e.listen(ns, at, func(c net.Conn) { e.take(c, at, config) }))
		}
		for _, port := range evilUDP {
			err = errors.Join(err, e.listenUDP(ns, netip.AddrPortFrom(addr, port)))
		}
	}
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

// Contacts returns what reached it so far.
func (e *Evil) Contacts() []Contact {
	e.seen.Lock()
	defer e.seen.Unlock()
	return slices.Clone(e.contacts)
}

func (e *Evil) note(c Contact) {
	e.seen.Lock()
	defer e.seen.Unlock()
	e.contacts = append(e.contacts, c)
}

// take records the connection before it reads and again with what it read, and plays a web server that is glad about the visit.
func (e *Evil) take(c net.Conn, at netip.AddrPort, config *tls.Config) {
	contact := Contact{At: time.Now(), From: c.RemoteAddr().String(), To: at, Proto: "tcp"}
	e.note(contact)
	if at.Port() == 443 {
		c = tls.Server(c, config)
	}
	c.SetDeadline(time.Now().Add(5 * time.Second))
	buf := make([]byte, 1024)
	n, err := c.Read(buf)
	if err == nil {
		contact.Bytes = string(buf[:n])
		e.note(contact)
		c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nevil"))
	}
}

func (e *Evil) listenUDP(ns *Namespace, at netip.AddrPort) error {
	pc, err := ns.ListenPacket("udp", at.String())
	if err != nil {
		return err
	}
	e.add(pc)
	go e.takePackets(pc, at)
	return nil
}

func (e *Evil) takePackets(pc net.PacketConn, at netip.AddrPort) {
	defer e.drop(pc)
	buf := make([]byte, 2048)
	for {
		n, from, err := pc.ReadFrom(buf)
		if err != nil {
			return
		}
		e.note(Contact{At: time.Now(), From: from.String(), To: at, Proto: "udp", Bytes: string(buf[:n])})
		pc.WriteTo(buf[:n], from)
	}
}
