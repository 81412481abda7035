package forward

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"portreeve.dev/ingress/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const public = "abcdefghijklmn27-3000.tunnel.localhost"

// A world is a forwarder between a real client and a real app.
type world struct {
	t          testing.TB
	f          *Forwarder
	url        string // of the forwarder
	addr       string // of the app
	rec        route.Record
	secure     bool
	generation uint64
	errs       chan error

	mu    sync.Mutex
	dials []route.Record
}

func (w *world) Dial(ctx context.Context, rec *route.Record) (net.Conn, error) {
	w.mu.Lock()
	w.dials = append(w.dials, *rec)
	w.mu.Unlock()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", w.addr)
	if err != nil {
		return nil, errors.Join(ErrPortClosed, err)
	}
	return nc, nil
}

func (w *world) dialled() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.dials)
}

func newWorld(t testing.TB, change ...func(*Config)) *world {
	t.Helper()
	w := &world{t: t, generation: 5, secure: true, errs: make(chan error, 100)}
	w.rec = route.Record{Host: public, Tunnel: "tun_1", Sandbox: "sbx_1", Org: "org_1", Port: 3000, Generation: 5, State: route.Running, Public: true}
	c := Config{Dialer: w}
	for _, f := range change {
		f(&c)
	}
	var err error
	if w.f, err = New(c); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rec := w.rec
		err := w.f.Forward(r.Context(), rw, r, Hop{Record: &rec, Generation: w.generation, Client: netip.MustParseAddr("192.0.2.7"), Authority: public + ":8443", Secure: w.secure, Upgrade: func(http.ResponseWriter) (net.Conn, *bufio.Reader, error) { return nil, nil, errors.New("not here") }})
		w.errs <- err
		if err != nil {
			if errors.Is(err, ErrAborted) {
				panic(http.ErrAbortHandler)
			}
			http.Error(rw, err.Error(), http.StatusBadGateway)
		}
	}))
	front.Config.ErrorLog = nil
	w.url = front.URL
	t.Cleanup(func() { front.Close(); w.f.Close() })
	return w
}

// app runs an app on net/http.
func (w *world) app(h http.HandlerFunc) {
	s := httptest.NewServer(h)
	w.addr = s.Listener.Addr().String()
	w.t.Cleanup(s.Close)
}

// raw runs an app that speaks for itself; serve gets each connection with its number.
func (w *world) raw(serve func(n int, nc net.Conn, r *bufio.Reader)) {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.addr = ln.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := 0; ; n++ {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer nc.Close()
				_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
				serve(n, nc, bufio.NewReader(nc))
			})
		}
	})
	w.t.Cleanup(func() { ln.Close(); w.f.Close(); wg.Wait() })
}

// head reads one request head as it is on the wire.
func head(r *bufio.Reader) (string, bool) {
	var b strings.Builder
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return b.String(), false
		}
		b.WriteString(line)
		if line == "\r\n" {
			return b.String(), true
		}
	}
}

// ask sends one request as it is on the wire, and reads one answer.
func (w *world) ask(request string) (string, *http.Response) {
	w.t.Helper()
	nc := w.open()
	defer nc.Close()
	if _, err := io.WriteString(nc, request); err != nil {
		w.t.Fatal(err)
	}
	r := bufio.NewReader(nc)
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(r, &http.Request{Method: method})
	if err != nil {
		w.t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatalf("reading the body: %v", err)
	}
	return string(body), resp
}

func (w *world) open() net.Conn {
	w.t.Helper()
	nc, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
	if err != nil {
		w.t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(20 * time.Second))
	w.t.Cleanup(func() { nc.Close() })
	return nc
}

// echoHead is an app that answers with the head it got.
func echoHead(_ int, nc net.Conn, r *bufio.Reader) {
	for {
		h, ok := head(r)
		if !ok {
			return
		}
		fmt.Fprintf(nc, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(h), h)
	}
}

func get(path string, fields ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + public + ":8443\r\n" + lines(fields) + "\r\n"
}

func lines(fields []string) string {
	if len(fields) == 0 {
		return ""
	}
	return strings.Join(fields, "\r\n") + "\r\n"
}

// fields returns the values of a header in a head, in any spelling of its name that folds to the given one.
func fields(h, name string) []string {
	var values []string
	for line := range strings.SplitSeq(h, "\r\n") {
		n, v, ok := strings.Cut(line, ": ")
		if ok && fold(n) == name {
			values = append(values, v)
		}
	}
	return values
}

// fold is the slow and obvious twin of what reserved does.
func fold(name string) string {
	return strings.NewReplacer("_", "-", ".", "-").Replace(strings.ToLower(name))
}
