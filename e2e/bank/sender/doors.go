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
	s := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: d.Name})
	return s, s.Handshake()
}

func (d door) basic() string {
	return base64.StdEncoding.EncodeToString([]byte(d.User + ":" + d.Pass))
}

// connectBy asks the HTTP proxy for a tunnel. The target is sent as it stands.
func (t *talk) connectBy(to string) (net.Conn, error) {
	d := t.job.HTTP
	c, err := d.open(t)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\nProxy-Authorization: Basic %s\r\n\r\n", to, to, d.basic()); err != nil {
		return nil, err
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != 200 {
		return nil, &notFound{fmt.Sprint(resp.StatusCode)}
	}
	return &buffered{c, r}, nil
}

// socksBy asks for a tunnel by SOCKS5 with a name.
func (t *talk) socksBy(to string) (net.Conn, error) {
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
	if _, err := c.Write(msg); err != nil {
		return nil, err
	}
	var head [2 + 2 + 4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	if head[5] != 0 {
		return nil, &notFound{fmt.Sprint("socks ", head[5])}
	}
	rest := map[byte]int{1: 4 + 2, 4: 16 + 2}[head[7]]
	if _, err := io.ReadFull(c, make([]byte, rest)); err != nil {
		return nil, err
	}
	return c, nil
}
