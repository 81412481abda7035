package server

import (
	"bufio"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/ingress/forward"
	"portreeve.dev/ingress/route"
)

const (
	tunnelHost  = "abcdefghijklmn27-3000.tunnel.localhost"
	tunnelToken = "prt_a-token-of-a-tunnel"
)

// paused is the state with one tunnel, of a sandbox that sleeps.
func paused(revision uint64) feed.RouteState {
	return feed.RouteState{Revision: revision, Records: []route.Record{{Host: tunnelHost, Tunnel: "tun_1", Sandbox: "sbx_1", Org: "org_1", Port: 3000, Generation: 2,
		State: route.Paused, TokenHash: sha256.Sum256([]byte(tunnelToken)), AuthEpoch: 1, ExpiresAt: time.Now().Add(time.Hour)}}}
}

// with asks for the page of the tunnel with a token, as a program does.
func (p *port) with(t *testing.T, token string) (status int, body string) {
	t.Helper()
	c, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{ServerName: tunnelHost, RootCAs: p.roots}}).Dial("tcp4", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "GET /page HTTP/1.1\r\nHost: %s\r\nX-Portreeve-Token: %s\r\nConnection: close\r\n\r\n", tunnelHost, token)
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// TestCallerWithATokenWakes goes the whole way through the process: keys, routes, access, wake, dial.
func TestCallerWithATokenWakes(t *testing.T) {
	p := newPort(t, true)
	p.wake = func(r role.WakeRequest) (role.Woken, error) {
		if r.Sandbox != "sbx_1" || r.Generation != 2 {
			t.Errorf("asked to wake %+v", r)
		}
		return role.Woken{Generation: 3}, nil
	}
	for range 2 { // once more, as a control that was started anew does
		if err := call(p.control, role.IngressKeys, p.keys, nil); err != nil {
			t.Fatal(err)
		}
	}
	var applied feed.Applied
	if err := call(p.control, feed.Routes, paused(4), &applied); err != nil || applied.Revision != 4 {
		t.Fatalf("the routes: %+v, %v", applied, err)
	}
	for _, token := range []string{"", "wrong", tunnelToken + "x"} {
		if status, _ := p.with(t, token); status != 401 {
			t.Errorf("with the token %q: %d", token, status)
		}
	}
	if dials, wakes := p.took(); dials+wakes != 0 {
		t.Fatalf("%d dials and %d wakes for callers without the token", dials, wakes)
	}
	if status, body := p.with(t, tunnelToken); status != 200 || body != "sbx_1:3000@3 /page" {
		t.Errorf("with the token: %d %q", status, body)
	}
	if dials, wakes := p.took(); dials != 1 || wakes != 1 {
		t.Errorf("%d dials and %d wakes", dials, wakes)
	}
	// Deleted: it is gone, and nothing is dialled any more.
	if err := call(p.control, feed.Routes, feed.RouteState{Revision: 5, Records: []route.Record{}}, nil); err != nil {
		t.Fatal(err)
	}
	if status, _ := p.with(t, tunnelToken); status != 410 {
		t.Errorf("after its end: %d", status)
	}
	if dials, wakes := p.took(); dials != 1 || wakes != 1 {
		t.Errorf("%d dials and %d wakes after its end", dials, wakes)
	}
}

// TestStaleRouteIsWokenAndDialledAgain: the sandbox slept and woke, and the route does not say so yet.
func TestStaleRouteIsWokenAndDialledAgain(t *testing.T) {
	p := newPort(t, false)
	p.wake = func(role.WakeRequest) (role.Woken, error) { return role.Woken{Generation: 9}, nil }
	p.dial = func(r role.DialRequest) error {
		if r.Generation != 9 {
			return &link.Error{Code: role.CodeStaleRoute, Message: "another generation runs"}
		}
		return nil
	}
	if err := call(p.control, role.IngressKeys, p.keys, nil); err != nil {
		t.Fatal(err)
	}
	state := paused(1)
	state.Records[0].State = route.Running
	if err := call(p.control, feed.Routes, state, nil); err != nil {
		t.Fatal(err)
	}
	if status, body := p.with(t, tunnelToken); status != 200 || body != "sbx_1:3000@9 /page" {
		t.Errorf("%d %q", status, body)
	}
	p.mu.Lock()
	p.dial = func(role.DialRequest) error {
		return &link.Error{Code: role.CodePortClosed, Message: "nothing listens"}
	}
	p.mu.Unlock()
	if err := call(p.control, feed.Routes, func() feed.RouteState { s := state; s.Records[0].Generation = 10; return s }(), nil); err != nil {
		t.Fatal(err)
	}
	if status, body := p.with(t, tunnelToken); status != 502 || !strings.Contains(body, "nothing listens") {
		t.Errorf("a closed port: %d %q", status, body)
	}
}

// TestBrokenRouteIsNotAcknowledged: control must not believe that ingress knows what it refused.
func TestBrokenRouteIsNotAcknowledged(t *testing.T) {
	p := newPort(t, false)
	if err := call(p.control, role.IngressKeys, p.keys, nil); err != nil {
		t.Fatal(err)
	}
	state := paused(1)
	state.Records = append(state.Records, route.Record{Host: "b", Tunnel: "tun_2"})
	if err := call(p.control, feed.Routes, state, nil); err == nil {
		t.Error("a route without an end was taken")
	}
	if err := call(p.control, feed.Routes, paused(2), nil); err != nil {
		t.Errorf("the twin: %v", err)
	}
}

// TestIngressEndsWithItsListener: a process that serves nothing must not stay, or nobody would start it anew.
func TestIngressEndsWithItsListener(t *testing.T) {
	for _, plain := range []bool{true, false} {
		i := newIngress(slog.New(slog.DiscardHandler))
		failed := make(chan struct{})
		i.fail = func() { close(failed) }
		i.setup = role.IngressStart{TunnelDomain: "tunnel.localhost", Plain: plain}
		var err error
		if i.listener, err = net.Listen("tcp4", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		i.ctx, i.stop = context.WithCancel(context.Background())
		if err := i.equip(newPort(t, false).keys); err != nil {
			t.Fatal(err)
		}
		i.listener.Close()
		select {
		case <-failed:
		case <-time.After(patience):
			t.Errorf("plain %v: the process goes on without a listener", plain)
		}
		i.stop()
		i.running.Wait()
	}
}

func TestDialErrorsKeepTheirMeaning(t *testing.T) {
	plain := errors.New("inward is gone")
	for _, c := range []struct {
		err  error
		want error // nil: none of the two
	}{
		{&link.Error{Code: role.CodeStaleRoute}, forward.ErrStale},
		{&link.Error{Code: role.CodeUnknown}, forward.ErrStale}, // a resumed inward may not know it yet, and a wake tells
		{&link.Error{Code: role.CodePortClosed}, forward.ErrPortClosed},
		{&link.Error{Code: "internal"}, nil},
		{plain, nil},
		{fmt.Errorf("calling: %w", link.ErrClosed), nil},
	} {
		got := dialError(c.err)
		if errors.Is(got, forward.ErrStale) != (c.want == forward.ErrStale) || errors.Is(got, forward.ErrPortClosed) != (c.want == forward.ErrPortClosed) || !errors.Is(got, c.err) {
			t.Errorf("%v became %v", c.err, got)
		}
	}
}
