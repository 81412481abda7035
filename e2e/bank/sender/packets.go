package main

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"
)

// packet sends a datagram and tells what comes back.
func (t *talk) packet(u *udpStep) said {
	c, err := net.DialTimeout("udp", u.To, t.limit)
	if err != nil {
		return bad("%s", word(err))
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(min(t.limit, time.Second)))
	if _, err := c.Write([]byte(u.Send)); err != nil {
		return bad("%s", word(err))
	}
	buf := make([]byte, 2048)
	n, err := c.Read(buf)
	if err != nil {
		return bad("%s", word(err))
	}
	return ok("%q", buf[:n])
}

// scan opens connections to many ports at once and counts what they come to.
func (t *talk) scan(s *scan) said {
	var mu sync.Mutex
	var wg sync.WaitGroup
	count := map[string]int{}
	for port := s.First; port <= s.Last; port++ {
		wg.Go(func() {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(s.To, fmt.Sprint(port)), time.Second)
			w := "open"
			if err == nil {
				c.SetDeadline(time.Now().Add(time.Second))
				c.Write([]byte("scan\n"))
				if n, rerr := c.Read(make([]byte, 1)); n == 0 {
					w = word(rerr)
				}
				c.Close()
			} else {
				w = word(err)
			}
			mu.Lock()
			defer mu.Unlock()
			count[w]++
		})
	}
	wg.Wait()
	what := ok("%s", counted(count))
	what.OK = count["open"] == 0
	return what
}

// raw sends a packet of a protocol, by whatever kind of socket the sandbox is given.
func raw(r *rawStep) said {
	addr, err := netip.ParseAddr(r.To)
	if err != nil {
		return bad("%v", err)
	}
	data, err := unhex(r.Hex)
	if err != nil {
		return bad("%v", err)
	}
	domain := syscall.AF_INET6
	var to syscall.Sockaddr = &syscall.SockaddrInet6{Addr: addr.As16()}
	if addr.Is4() {
		domain, to = syscall.AF_INET, &syscall.SockaddrInet4{Addr: addr.As4()}
	}
	var words []string
	for _, kind := range []int{syscall.SOCK_DGRAM, syscall.SOCK_RAW} {
		fd, err := syscall.Socket(domain, kind, r.Proto)
		if err != nil {
			words = append(words, word(err))
			continue
		}
		syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Usec: 300_000})
		if err := syscall.Sendto(fd, data, 0, to); err != nil {
			words = append(words, word(err))
		} else if n, _, err := syscall.Recvfrom(fd, make([]byte, 512), 0); err == nil && n > 0 {
			words = append(words, "answered")
		} else {
			words = append(words, "silence")
		}
		syscall.Close(fd)
	}
	return said{OK: strings.Contains(strings.Join(words, ", "), "answered"), Outcome: strings.Join(words, ", ")}
}
