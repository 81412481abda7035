package lab

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"
)

// ProxyPort is where the company's proxy listens: a port that the lab's exemptions open, so that only its being the proxy keeps it shut.
const ProxyPort = 8080

// A Proxy is a company's: it makes connections for whoever asks, and writes down what it was asked for.
type Proxy struct {
	Addr   netip.AddrPort
	URL    string // for the product's configuration, by name
	scheme string
	tls    *tls.Config // of https
	ns     *Namespace

	mu     sync.Mutex
	open   *group
	status int // of the answers; 200 connects
	asked  []string
	logins []string // as HTTP has them
}

// StartProxy starts the lab's company proxy; it ends with the test. It speaks HTTP (CONNECT), in the clear by scheme "http" and over TLS
// by "https", or "socks5", always with a login.
func (l *Lab) StartProxy(t TB, scheme string) *Proxy {
	t.Helper()
	const name = "proxy.company.test"
	p := &Proxy{Addr: netip.AddrPortFrom(proxyAddr, ProxyPort), URL: fmt.Sprintf("%s://%s:%d", scheme, name, ProxyPort), scheme: scheme, ns: l.Net, status: http.StatusOK}
	if scheme == "https" {
		cert, err := l.CA.Issue(time.Now().Add(time.Hour), name)
		if err != nil {
			t.Fatalf("a certificate for the company's proxy: %v", err)
		}
		p.tls = &tls.Config{Certificates: []tls.Certificate{*cert}}
	}
	if err := p.Up(); err != nil {
		t.Fatalf("starting the company's proxy: %v", err)
	}
	t.Cleanup(func() { p.Down() })
	return p
}

// Up begins to listen.
func (p *Proxy) Up() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = new(group)
	return p.open.listen(p.ns, p.Addr, p.serve)
}

// Down ends what is open, and refuses connections.
func (p *Proxy) Down() {
	p.mu.Lock()
	open := p.open
	p.open = new(group)
	p.mu.Unlock()
	open.close()
}

// Answer sets the status of later answers; 200 connects.
func (p *Proxy) Answer(status int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status = status
}

// Asked returns what was asked for, and the logins beside.
func (p *Proxy) Asked() (targets, logins []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked), slices.Clone(p.logins)
}

func (p *Proxy) serve(c net.Conn) {
	if p.tls != nil {
		c = tls.Server(c, p.tls)
	}
	in := bufio.NewReader(c)
	asked := p.byHTTP
	if p.scheme == "socks5" {
		asked = p.bySOCKS
	}
	target, login, answer, err := asked(c, in)
	if err != nil {
		return
	}
	p.mu.Lock()
	p.asked, p.logins = append(p.asked, target), append(p.logins, login)
	status := p.status
	p.mu.Unlock()
	if status != http.StatusOK {
		answer(status)
		return
	}
	var up net.Conn
	if err := p.ns.Do(func() error { up, err = net.Dial("tcp", target); return err }); err != nil {
		answer(http.StatusBadGateway)
		return
	}
	defer up.Close()
	if answer(status) == nil {
		relay(c, in, up)
	}
}

// byHTTP reads a CONNECT.
func (p *Proxy) byHTTP(c net.Conn, in *bufio.Reader) (target, login string, answer func(status int) error, err error) {
	r, err := http.ReadRequest(in)
	if err != nil || r.Method != http.MethodConnect {
		return "", "", nil, errors.Join(errors.New("no CONNECT"), err)
	}
	return r.Host, r.Header.Get("Proxy-Authorization"), func(status int) error {
		head := "HTTP/1.1 200 Connection established\r\n\r\n"
		if status != http.StatusOK {
			head = "HTTP/1.1 " + strconv.Itoa(status) + " no\r\nContent-Length: 0\r\n\r\n"
		}
		_, err := io.WriteString(c, head)
		return err
	}, nil
}

// bySOCKS reads a login and a request for an IPv4 address of SOCKS5 (RFC 1928, RFC 1929).
func (p *Proxy) bySOCKS(c net.Conn, in *bufio.Reader) (target, login string, answer func(status int) error, err error) {
	read := func(n int) []byte {
		b := make([]byte, n)
		if err == nil {
			_, err = io.ReadFull(in, b)
		}
		return b
	}
	read(int(read(2)[1]))
	c.Write([]byte{5, 2})
	user := read(int(read(2)[1]))
	password := read(int(read(1)[0]))
	c.Write([]byte{1, 0})
	ask := read(10)
	if err == nil && ask[3] != 1 {
		err = errors.New("asked for something else than an IPv4 address")
	}
	target = netip.AddrPortFrom(netip.AddrFrom4([4]byte(ask[4:8])), binary.BigEndian.Uint16(ask[8:])).String()
	login = "Basic " + base64.StdEncoding.EncodeToString([]byte(string(user)+":"+string(password)))
	return target, login, func(status int) error {
		reply := []byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0}
		if status != http.StatusOK {
			reply[1] = 2 // not allowed
		}
		_, err := c.Write(reply)
		return err
	}, err
}

// relay moves bytes both ways, to the end of each.
func relay(c net.Conn, in io.Reader, up net.Conn) {
	type halfCloser interface{ CloseWrite() error }
	done := make(chan error)
	go func() {
		_, err := io.Copy(up, in)
		done <- errors.Join(err, up.(halfCloser).CloseWrite())
	}()
	io.Copy(c, up)
	c.(halfCloser).CloseWrite()
	up.Close()
	c.Close()
	<-done
}
