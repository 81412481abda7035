package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// open connects to the door and speaks TLS with it.
func (d door) open(t *talk) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", d.At, t.limit)
	if err != nil {
		return nil, err
	}
	t.open = append(t.open, c)
	c.SetDeadline(time.Now().Add(t.limit))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(d.CA))
	t.secrets.Reset()
	s := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: d.Name, KeyLogWriter: &t.secrets})
	return s, s.Handshake()
}

func (d door) basic() string {
	return base64.StdEncoding.EncodeToString([]byte(d.User + ":" + d.Pass))
}

// A call is what a door is asked, and how its answer is read.
type call struct {
	c    net.Conn
	say  []byte
	hear func(r *bufio.Reader) error
}

// connectBy asks the HTTP proxy for a tunnel. The target is sent as it stands.
func (t *talk) connectBy(to string) (net.Conn, error) {
	c, err := t.httpCall(to)
	if err != nil {
		return nil, err
	}
	return c.ask()
}

func (t *talk) httpCall(to string) (*call, error) {
	d := t.job.HTTP
	c, err := d.open(t)
	if err != nil {
		return nil, err
	}
	say := fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Basic %s\r\n\r\n", to, to, d.basic())
	return &call{c, []byte(say), func(r *bufio.Reader) error {
		resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
		if err == nil && resp.StatusCode != 200 {
			err = &notFound{fmt.Sprint(resp.StatusCode)}
		}
		return err
	}}, nil
}

// socksBy asks for a tunnel by SOCKS5 with a name.
func (t *talk) socksBy(to string) (net.Conn, error) {
	c, err := t.socksCall(to)
	if err != nil {
		return nil, err
	}
	return c.ask()
}

func (t *talk) socksCall(to string) (*call, error) {
	d := t.job.SOCKS
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		return nil, err
	}
	n, err := net.LookupPort("tcp", port)
	if err != nil {
		return nil, err
	}
	c, err := d.open(t)
	if err != nil {
		return nil, err
	}
	msg := append([]byte{5, 1, 2, 1, byte(len(d.User))}, d.User...)
	msg = append(append(msg, byte(len(d.Pass))), d.Pass...)
	msg = append(append(append(msg, 5, 1, 0, 3, byte(len(host))), host...), byte(n>>8), byte(n))
	return &call{c, msg, func(r *bufio.Reader) error {
		var head [2 + 2 + 4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		if head[5] != 0 {
			return &notFound{fmt.Sprint("socks ", head[5])}
		}
		rest := map[byte]int{1: 4 + 2, 4: 16 + 2}[head[7]]
		_, err := io.ReadFull(r, make([]byte, rest))
		return err
	}}, nil
}

// ask says it, and gives the connection once the door has agreed.
func (c *call) ask() (net.Conn, error) {
	if _, err := c.c.Write(c.say); err != nil {
		return nil, err
	}
	r := bufio.NewReader(c.c)
	if err := c.hear(r); err != nil {
		return nil, err
	}
	return &buffered{c.c, r}, nil
}

// early is a connection whose first bytes go out in one write with what the door is asked, before it has said anything.
func (t *talk) early(to string) (net.Conn, error) {
	ask := t.httpCall
	if t.path == "socks" {
		ask = t.socksCall
	}
	c, err := ask(to)
	if err != nil {
		return nil, err
	}
	return &earlyConn{buffered{c.c, bufio.NewReader(c.c)}, c, false}, nil
}

type earlyConn struct {
	buffered
	call  *call
	heard bool
}

func (e *earlyConn) Write(p []byte) (int, error) {
	if e.call.say == nil {
		return e.Conn.Write(p)
	}
	_, err := e.Conn.Write(append(e.call.say, p...))
	e.call.say = nil
	return len(p), err
}

func (e *earlyConn) Read(p []byte) (int, error) {
	if !e.heard {
		e.heard = true
		if err := e.call.hear(e.r); err != nil {
			return 0, err
		}
	}
	return e.r.Read(p)
}
