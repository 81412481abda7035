package lab

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
)

// ProxyPort is where the company's proxy listens: a port that the lab's exemptions open, so that only its being the proxy keeps it shut.
const ProxyPort = 8080

// A Proxy is a company's: it makes connections for whoever asks with CONNECT, and writes down what it was asked for.
type Proxy struct {
	Addr netip.AddrPort
	ns   *Namespace

	mu     sync.Mutex
	open   *group
	status int // of the answers; 200 connects
	asked  []string
	logins []string
}

// StartProxy starts the lab's company proxy; it ends with the test.
func (l *Lab) StartProxy(t TB) *Proxy {
	t.Helper()
	p := &Proxy{Addr: netip.AddrPortFrom(proxyAddr, ProxyPort), ns: l.Net, status: http.StatusOK}
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
	in := bufio.NewReader(c)
	r, err := http.ReadRequest(in)
	if err != nil || r.Method != http.MethodConnect {
		return
	}
	p.mu.Lock()
	p.asked, p.logins = append(p.asked, r.Host), append(p.logins, r.Header.Get("Proxy-Authorization"))
	status := p.status
	p.mu.Unlock()
	if status != http.StatusOK {
		io.WriteString(c, "HTTP/1.1 "+strconv.Itoa(status)+" no\r\nContent-Length: 0\r\n\r\n")
		return
	}
	var up net.Conn
	if err := p.ns.Do(func() error { up, err = net.Dial("tcp", r.Host); return err }); err != nil {
		io.WriteString(c, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer up.Close()
	if _, err := io.WriteString(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	done := make(chan error)
	go func() {
		_, err := io.Copy(up, in)
		done <- errors.Join(err, up.(*net.TCPConn).CloseWrite())
	}()
	io.Copy(c, up)
	c.(*net.TCPConn).CloseWrite()
	up.Close()
	c.Close()
	<-done
}
