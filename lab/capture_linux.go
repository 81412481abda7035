package lab

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	markerPort = 9 // discard: nothing listens, the capture only has to see it
	markerHead = "lab-marker-"
	keepMost   = 300_000 // packets; a capture that had to forget some vouches for nothing
)

// A Capture records every frame on the uplink, in both directions. It is safe for concurrent use.
type Capture struct {
	sock *os.File
	mark func(string) error // sends a frame over the link
	done chan struct{}

	mu      sync.Mutex
	packets []Packet
	markers map[string]bool // seen
	more    chan struct{}   // closed and made anew when something arrived
	lost    error           // why the record is not whole
}

func startCapture(ns *Namespace, link string, mark func(string) error) (*Capture, error) {
	c := &Capture{mark: mark, done: make(chan struct{}), markers: map[string]bool{}, more: make(chan struct{})}
	err := ns.Do(func() error {
		const all = uint16(unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8) // big endian
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(all))
		if err != nil {
			return err
		}
		c.sock = os.NewFile(uintptr(fd), "capture")
		dev, err := net.InterfaceByName(link)
		if err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: dev.Index}); err != nil {
			return err
		}
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	})
	if err != nil {
		if c.sock != nil {
			c.sock.Close()
		}
		return nil, err
	}
	go c.run()
	return c, nil
}

func (c *Capture) close() error {
	err := c.sock.Close()
	<-c.done
	return err
}

func (c *Capture) run() {
	defer close(c.done)
	raw, err := c.sock.SyscallConn()
	if err != nil {
		c.note(nil, err)
		return
	}
	buf := make([]byte, 2048) // heads only: MSG_TRUNC tells the true length
	for {
		var n int
		var from unix.Sockaddr
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			n, from, rerr = unix.Recvfrom(int(fd), buf, unix.MSG_TRUNC)
			return rerr != unix.EAGAIN
		})
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				c.note(nil, err)
			}
			return
		}
		if rerr != nil {
			c.note(nil, rerr)
			if rerr != unix.EINTR && rerr != unix.ENETDOWN && rerr != unix.ENOBUFS {
				return
			}
			continue
		}
		p := parseFrame(buf[:min(n, len(buf))])
		p.At, p.Len = time.Now(), n
		if ll, ok := from.(*unix.SockaddrLinklayer); ok {
			p.FromGate = ll.Pkttype != unix.PACKET_OUTGOING
		}
		c.note(&p, nil)
	}
}

func (c *Capture) note(p *Packet, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.lost = errors.Join(c.lost, err)
	case p.Proto == protoUDP && p.DstPort == markerPort && strings.HasPrefix(string(p.Payload), markerHead):
		c.markers[string(p.Payload)] = true
	case p.Proto == protoICMP && p.Dst == gatewayAddr && p.Src == routerAddr && p.Type == 3:
		// the answer to a marker: nobody listens there
	case len(c.packets) >= keepMost:
		c.lost = fmt.Errorf("more than %d packets", keepMost)
	default:
		c.packets = append(c.packets, *p)
	}
	close(c.more)
	c.more = make(chan struct{})
}

// Sync returns once everything that was on the link when it was called has been recorded. It is an error when the
// capture isn't looking any more, or has lost a frame since it began.
func (c *Capture) Sync() error {
	text := markerHead + rand.Text()
	deadline := time.After(10 * time.Second)
	if err := c.mark(text); err != nil {
		return fmt.Errorf("sending the capture's marker: %w", err)
	}
	for {
		c.mu.Lock()
		seen, more, lost := c.markers[text], c.more, c.lost
		c.mu.Unlock()
		switch {
		case lost != nil:
			return fmt.Errorf("the capture is not whole: %w", lost)
		case seen:
			return c.drops()
		}
		select {
		case <-more:
		case <-c.done:
			return errors.New("the capture has ended")
		case <-deadline:
			return errors.New("the capture did not see its own marker")
		}
	}
}

// drops asks the kernel whether it had to throw frames away; the question resets its count.
func (c *Capture) drops() error {
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return err
	}
	var stats *unix.TpacketStats
	var serr error
	if err := raw.Control(func(fd uintptr) {
		stats, serr = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	}); err != nil {
		return err
	}
	if serr != nil {
		return fmt.Errorf("reading the capture's losses: %w", serr)
	}
	if stats.Drops > 0 {
		err := fmt.Errorf("the kernel dropped %d frames", stats.Drops)
		c.note(nil, err)
		return err
	}
	return nil
}

// Seen returns the packets so far that match; nil matches all. Call Sync before when the last ones matter.
func (c *Capture) Seen(match func(Packet) bool) []Packet {
	c.mu.Lock()
	defer c.mu.Unlock()
	if match == nil {
		return slices.Clone(c.packets)
	}
	var seen []Packet
	for _, p := range c.packets {
		if match(p) {
			seen = append(seen, p)
		}
	}
	return seen
}

// Forget drops the record so far, to judge what comes from now on. A loss is not forgotten.
func (c *Capture) Forget() error {
	if err := c.Sync(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.packets = nil
	return nil
}

// Quiet vouches that no packet went to the addresses, came from them or asked for them, and that there was none that
// could not be read. It names the first ones otherwise.
func (c *Capture) Quiet(addrs ...netip.Addr) error {
	return c.none(func(p Packet) bool {
		return p.Broken || slices.ContainsFunc(addrs, p.Touches)
	})
}

// Unspoken vouches that no packet said the host name: neither a query, nor a ClientHello, nor a Host field.
func (c *Capture) Unspoken(host string) error {
	return c.none(func(p Packet) bool { return p.Says(host) })
}

// Only vouches that the product's side talked to nobody but the given addresses; the kernel's talk with its
// neighbour on the link doesn't count.
func (c *Capture) Only(addrs ...netip.Addr) error {
	return c.none(func(p Packet) bool {
		return p.Broken || p.FromGate && !p.housekeeping() && !slices.Contains(addrs, p.Dst)
	})
}

func (c *Capture) none(match func(Packet) bool) error {
	if err := c.Sync(); err != nil {
		return err
	}
	seen := c.Seen(match)
	if len(seen) == 0 {
		return nil
	}
	var lines []string
	for _, p := range seen[:min(len(seen), 5)] {
		lines = append(lines, p.String())
	}
	return fmt.Errorf("%d packets on the uplink that should not be there:\n%s", len(seen), strings.Join(lines, "\n"))
}

// Await returns the first packet that matches, waiting for it until the limit.
func (c *Capture) Await(limit time.Duration, match func(Packet) bool) (Packet, error) {
	deadline := time.After(limit)
	for {
		c.mu.Lock()
		more := c.more
		c.mu.Unlock()
		if seen := c.Seen(match); len(seen) > 0 {
			return seen[0], nil
		}
		select {
		case <-more:
		case <-c.done:
			return Packet{}, errors.New("the capture has ended")
		case <-deadline:
			return Packet{}, fmt.Errorf("no such packet within %v", limit)
		}
	}
}
