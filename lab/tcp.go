package lab

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Greeting is what tcp.test says on port 22 before its client says anything.
const Greeting = "SSH-2.0-lab\r\n"

// TCP is tcp.test: an echo on port 7, and on port 22 a server that speaks first and then echoes.
type TCP struct {
	Addr netip.Addr
	group
}

func startTCP(ns *Namespace) (*TCP, error) {
	t := &TCP{Addr: tcpAddr}
	err := errors.Join(
		t.listen(ns, netip.AddrPortFrom(tcpAddr, 7), echo),
		t.listen(ns, netip.AddrPortFrom(tcpAddr, 22), func(c net.Conn) {
			if _, err := io.WriteString(c, Greeting); err == nil {
				echo(c)
			}
		}))
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

// Connections is how many are open now.
func (t *TCP) Connections() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for c := range t.open {
		if _, ok := c.(net.Conn); ok {
			n++
		}
	}
	return n
}

func echo(c net.Conn) { io.Copy(c, c) }

// A group is listeners, packet sockets and the connections that came of them, ended together.
type group struct {
	mu     sync.Mutex
	open   map[io.Closer]bool
	closed bool
	wg     sync.WaitGroup
}

// add takes c into the group; a closed group closes it at once and says no.
func (g *group) add(c io.Closer) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		c.Close()
		return false
	}
	if g.open == nil {
		g.open = map[io.Closer]bool{}
	}
	g.open[c] = true
	g.wg.Add(1)
	return true
}

func (g *group) drop(c io.Closer) {
	c.Close()
	g.mu.Lock()
	delete(g.open, c)
	g.mu.Unlock()
	g.wg.Done()
}

func (g *group) close() error {
	g.mu.Lock()
	g.closed = true
	for c := range g.open {
		c.Close()
	}
	g.mu.Unlock()
	g.wg.Wait()
	return nil
}

func (g *group) listen(ns *Namespace, at netip.AddrPort, handle func(net.Conn)) error {
	l, err := ns.Listen("tcp", at.String())
	if err != nil {
		return err
	}
	g.add(l)
	go g.accept(l, handle)
	return nil
}

func (g *group) accept(l net.Listener, handle func(net.Conn)) {
	defer g.drop(l)
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		if !g.add(c) {
			continue
		}
		c.SetDeadline(time.Now().Add(10 * time.Minute))
		go func() {
			defer g.drop(c)
			handle(c)
		}()
	}
}
