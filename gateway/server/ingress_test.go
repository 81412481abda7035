package server

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/ingress/certs"
	"portreeve.dev/ingress/route"
)

// A port is ingress in this process, with its siblings; an app answers in the sandbox.
type port struct {
	addr    string
	control *link.Conn
	roots   *x509.CertPool
	keys    role.TunnelKeys

	mu    sync.Mutex
	dials []role.DialRequest
	wakes []string
	wake  func(role.WakeRequest) (role.Woken, error) // nil: nothing is woken
	dial  func(role.DialRequest) error               // nil: everything is dialled
}

// newPort starts it without keys.
func newPort(t *testing.T, plain bool, change ...func(*role.IngressStart)) *port {
	t.Helper()
	p := &port{roots: x509.NewCertPool()}
	ca, err := certs.NewDevCA("tunnel.localhost", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p.roots.AppendCertsFromPEM(ca.PEM())
	key, err := ca.MarshalKey()
	if err != nil {
		t.Fatal(err)
	}
	p.keys = role.TunnelKeys{Certificate: ca.Certificate(), Key: key, Cookie: []byte(strings.Repeat("k", 32))}

	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = l.Addr().String()
	file, err := l.(*net.TCPListener).File()
	l.Close()
	if err != nil {
		t.Fatal(err)
	}
	supervisor := supervise(t, newIngress(slog.New(slog.DiscardHandler)).life())
	told := role.IngressStart{TunnelDomain: "tunnel.localhost", Plain: plain}
	for _, f := range change {
		f(&told)
	}
	start, _ := json.Marshal(told)
	err = supervisor.Call(t.Context(), "start", child.Start{Config: start}, &child.Ready{}, file)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { call(supervisor, "stop", struct{}{}, nil) })
	p.siblings(t, supervisor)
	return p
}

func (p *port) siblings(t *testing.T, supervisor *link.Conn) {
	inward, node := link.NewMux(), link.NewMux()
	link.HandleFiles(inward, role.InwardDial, func(_ context.Context, r role.DialRequest, _ []*os.File) (struct{}, []*os.File, error) {
		p.mu.Lock()
		p.dials = append(p.dials, r)
		dial := p.dial
		p.mu.Unlock()
		if dial != nil {
			if err := dial(r); err != nil {
				return struct{}{}, nil, err
			}
		}
		ours, theirs, err := link.Pair()
		if err != nil {
			return struct{}{}, nil, err
		}
		app, err := link.Socket(ours)
		if err != nil {
			return struct{}{}, nil, err
		}
		go answer(app, r)
		return struct{}{}, []*os.File{theirs}, nil
	})
	link.Handle(node, role.NodeWake, func(_ context.Context, r role.WakeRequest) (role.Woken, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.wakes = append(p.wakes, r.Sandbox)
		if p.wake != nil {
			return p.wake(r)
		}
		return role.Woken{}, errors.New("nothing is woken here")
	})
	meet(t, supervisor, "inward", inward)
	meet(t, supervisor, "node", node)
	p.control = meet(t, supervisor, "control", nil)
}

// answer is the app: it says where it was reached.
func answer(c net.Conn, r role.DialRequest) {
	defer c.Close()
	requests := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(requests)
		if err != nil {
			return
		}
		io.Copy(io.Discard, req.Body)
		body := fmt.Sprintf("%s:%d@%d %s", r.Sandbox, r.Port, r.Generation, req.URL.Path)
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	}
}

func (p *port) took() (dials int, wakes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.dials), len(p.wakes)
}

// get connects under one name and asks for another.
func (p *port) get(t *testing.T, sni, host string) (status int, body string, err error) {
	t.Helper()
	c, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{ServerName: sni, RootCAs: p.roots, InsecureSkipVerify: sni == ""}}).Dial("tcp4", p.addr)
	if err != nil {
		return 0, "", err
	}
	defer c.Close()
	return ask(c, host)
}

func ask(c net.Conn, host string) (status int, body string, err error) {
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET /page HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", host)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(r.Body)
	return r.StatusCode, string(text), err
}

func TestUnknownNamesGetNothing(t *testing.T) {
	p := newPort(t, true)
	const known, unknown = "abcdefghijklmn27-3000.tunnel.localhost", "bbcdefghijklmn27-3000.tunnel.localhost"
	if err := call(p.control, role.IngressKeys, p.keys, nil); err != nil {
		t.Fatal(err)
	}
	state := feed.RouteState{Revision: 3, Records: []route.Record{{Host: known, Tunnel: "tun_1", Sandbox: "sbx_1", Org: "org_1", Port: 3000, Generation: 2,
		State: route.Running, Public: true, ExpiresAt: time.Now().Add(time.Hour)}}}
	var applied feed.Applied
	if err := call(p.control, feed.Routes, state, &applied); err != nil || applied.Revision != 3 {
		t.Fatalf("the routes: %+v, %v", applied, err)
	}
	if status, body, err := p.get(t, known, known); status != 200 || body != "sbx_1:3000@2 /page" || err != nil {
		t.Fatalf("a tunnel: %d %q %v", status, body, err)
	}
	before, _ := p.took()

	for _, sni := range []string{unknown, "console.localhost", "127.0.0.1.tunnel.localhost", "tunnel.localhost", "localhost", "example.com"} {
		if status, body, err := p.get(t, sni, sni); err == nil {
			t.Errorf("a handshake as %s: %d %q", sni, status, body)
		}
	}
	if status, _, err := p.get(t, "", known); err == nil && status == 200 {
		t.Error("a handshake without a name led to a tunnel")
	}
	for _, host := range []string{unknown, "console.localhost", "localhost", "example.com", "127.0.0.1", ""} {
		if status, body, err := p.get(t, known, host); err == nil && status < 400 {
			t.Errorf("a request for %q on a tunnel's connection: %d %q", host, status, body)
		}
		c, err := net.DialTimeout("tcp4", p.addr, patience)
		if err != nil {
			t.Fatal(err)
		}
		if status, body, err := ask(c, host); err == nil && status < 400 {
			t.Errorf("a request for %q in the clear: %d %q", host, status, body)
		}
		c.Close()
	}
	if dials, wakes := p.took(); dials != before || wakes != 0 {
		t.Errorf("%d dials and %d wakes for names that are no tunnel's", dials-before, wakes)
	}

	// A tunnel that ended is none, and neither is one of a paused sandbox that can't be woken.
	state.Revision++
	state.Records[0].State = route.Gone
	if err := call(p.control, feed.Routes, state, nil); err != nil {
		t.Fatal(err)
	}
	if status, _, err := p.get(t, known, known); err == nil && status == 200 {
		t.Error("a tunnel that ended is there")
	}
	if dials, _ := p.took(); dials != before {
		t.Error("a tunnel that ended was dialled")
	}
}

func TestWithoutKeysNobodyIsAnswered(t *testing.T) {
	p := newPort(t, false)
	if err := call(p.control, feed.Routes, feed.RouteState{Revision: 1, Records: []route.Record{}}, nil); err == nil {
		t.Fatal("routes were taken before the keys")
	}
	if err := call(p.control, role.IngressKeys, role.TunnelKeys{Certificate: p.keys.Certificate, Key: p.keys.Key}, nil); err == nil {
		t.Fatal("a cookie key of no bytes was taken")
	}
	if err := call(p.control, role.IngressKeys, p.keys, nil); err != nil {
		t.Fatal(err)
	}
	// Where plain tunnels are off nothing is said in the clear.
	c, err := net.DialTimeout("tcp4", p.addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if status, body, err := ask(c, "abcdefghijklmn27-3000.tunnel.localhost"); err == nil && status < 400 {
		t.Errorf("in the clear: %d %q", status, body)
	}
}
