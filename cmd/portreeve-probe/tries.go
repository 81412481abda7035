package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"
)

// ours is in each answer that Portreeve gives in place of the destination.
var ours = []byte("Portreeve-Decision:")

// synthetic is where Portreeve's own answers to names point.
var synthetic = netip.MustParsePrefix("198.18.0.0/15")

// tcp connects and asks for a page. Being accepted is not being out: Portreeve accepts first and refuses then.
func tcp(network, host string, port int) attempt {
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	return attempt{name: network + " " + addr, try: func() (string, bool) {
		c, err := net.DialTimeout(network, addr, limit)
		if err != nil {
			return kind(err), false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(limit))
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
		answer, err := io.ReadAll(io.LimitReader(c, 4096))
		switch {
		case len(answer) == 0:
			return "closed: " + kind(err), false
		case bytes.Contains(answer, ours):
			return "denied", false
		case len(answer) == 7 && answer[0] == 21: // a TLS alert: no server answers plain HTTP with a fatal alert alone
			return "denied by alert", false
		}
		return fmt.Sprintf("answered %.40q", answer), true
	}}
}

// query asks a resolver for a name that exists, and expects no address, or one that leads back to Portreeve.
func query(network, server string, port int) attempt {
	addr := net.JoinHostPort(server, strconv.Itoa(port))
	return attempt{name: "dns " + network + " " + addr, try: func() (string, bool) {
		c, err := net.DialTimeout(network, addr, limit)
		if err != nil {
			return kind(err), false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(limit))
		message := question("example.com")
		if network == "tcp4" {
			message = append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
		}
		if _, err := c.Write(message); err != nil {
			return kind(err), false
		}
		answer := make([]byte, 4096)
		n, err := c.Read(answer)
		if err != nil {
			return kind(err), false
		}
		if answer = answer[:n]; network == "tcp4" && n > 2 {
			answer = answer[2:]
		}
		return readAnswer(answer)
	}}
}

// question is a query for an A record.
func question(name string) []byte {
	m := []byte{0x70, 0x72, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0}
	for label := range bytes.SplitSeq([]byte(name), []byte(".")) {
		m = append(append(m, byte(len(label))), label...)
	}
	return append(m, 0, 0, 1, 0, 1)
}

func readAnswer(m []byte) (string, bool) {
	if len(m) < 12 || m[2]&0x80 == 0 {
		return "garbage", true
	}
	code, answers := m[3]&15, binary.BigEndian.Uint16(m[6:])
	if answers == 0 {
		return fmt.Sprintf("refused with rcode %d", code), false
	}
	last, _ := netip.AddrFromSlice(m[len(m)-4:])
	if synthetic.Contains(last) {
		return "answered by portreeve", false
	}
	return fmt.Sprintf("answered, last bytes %v", last), true
}

// udp sends a datagram and waits for anything to come back.
func udp(network, host string, port int) attempt {
	addr := net.JoinHostPort(host, strconv.Itoa(port))
	return attempt{name: network + " " + addr, try: func() (string, bool) {
		c, err := net.Dial(network, addr)
		if err != nil {
			return kind(err), false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(limit))
		if _, err := c.Write(make([]byte, 1200)); err != nil {
			return kind(err), false
		}
		answer := make([]byte, 1500)
		n, err := c.Read(answer)
		switch {
		case err != nil:
			return kind(err), false
		case port == 53: // Portreeve's resolver has a word for a message that is none
			return readAnswer(answer[:n])
		}
		return fmt.Sprintf("answered with %d bytes", n), true
	}}
}

// socket asks for a kind of socket that could carry packets past the rules; an echo socket may exist, and must be deaf.
func socket(name string, family, typ, proto int) attempt {
	return attempt{name: name, try: func() (string, bool) {
		fd, err := syscall.Socket(family, typ, proto)
		if err != nil {
			return kind(err), false
		}
		defer syscall.Close(fd)
		if family != syscall.AF_INET {
			return "opened", true
		}
		echo := []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}
		if err := syscall.Sendto(fd, echo, 0, &syscall.SockaddrInet4{Addr: [4]byte{1, 1, 1, 1}}); err != nil {
			return "opened, sending: " + kind(err), false
		}
		wait := syscall.NsecToTimeval(limit.Nanoseconds())
		syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &wait)
		if n, _, err := syscall.Recvfrom(fd, make([]byte, 1500), 0); err == nil {
			return fmt.Sprintf("answered with %d bytes", n), true
		}
		return "opened, silence", false
	}}
}

// name looks one up as programs do.
func name(host string) attempt {
	return attempt{name: "name " + host, try: func() (string, bool) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
		defer cancel()
		addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
		if err != nil {
			return kind(err), false
		}
		for _, a := range addrs {
			if !synthetic.Contains(a.Unmap()) && !a.Unmap().IsLoopback() {
				return fmt.Sprintf("resolved to %v", a), true
			}
		}
		return "resolved by portreeve", false
	}}
}

// control tries the socket of the sandbox's own init.
func control(path string) attempt {
	return attempt{name: "control socket", try: func() (string, bool) {
		c, err := net.DialTimeout("unix", path, limit)
		if err != nil {
			return kind(err), false
		}
		c.Close()
		return "connected", true
	}}
}

// kind names an error in one word where there is one.
func kind(err error) string {
	var dns *net.DNSError
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return "end"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
		return "reset"
	case errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ETIMEDOUT):
		return "silence"
	case errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.EADDRNOTAVAIL):
		return "unreachable"
	case errors.Is(err, os.ErrPermission):
		return "not permitted"
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such name"
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "silence"
	}
	return err.Error()
}
