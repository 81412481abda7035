package edge

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/egress/credentials"
	"portreeve.dev/egress/egresstest"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/role"
)

const guest = "sbx_guest"

// withGuest is a state with an attached sandbox in it.
func withGuest(revision uint64, keys ...feed.DoorKey) feed.State {
	s := policy(revision, "good.test")
	s.Orgs[0].DoorKeys = keys
	s.Sandboxes = append(s.Sandboxes, feed.Sandbox{ID: guest, Org: org, Attached: &feed.Attached{Incarnation: 1, Ends: time.Now().Add(time.Hour)}})
	return s
}

// dialSocket makes the guest's socket, and returns what connects to it and where it is.
func (w *world) dialSocket(t *testing.T) (dial func() net.Conn, path string) {
	t.Helper()
	path, err := w.socket(t, guest)
	if err != nil {
		t.Fatal(err)
	}
	return func() net.Conn {
		t.Helper()
		nc, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return nc
	}, path
}

// socket hands the edge a socket of a sandbox and returns where it is.
func (w *world) socket(t *testing.T, sandbox string) (path string, err error) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "edge")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	f, err := l.(*net.UnixListener).File()
	l.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return path, talk(t, w.supervisor, "node", nil).Call(t.Context(), role.EdgeDoor, role.SandboxRef{Sandbox: sandbox}, nil, f)
}

// tunnel asks for one and returns the status, and the connection.
func tunnel(t *testing.T, nc net.Conn, to, field string) int {
	t.Helper()
	nc.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(nc, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", to, to, field)
	resp, err := http.ReadResponse(bufio.NewReader(nc), &http.Request{Method: http.MethodConnect})
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}

func TestDetachedSandboxIsCutOff(t *testing.T) {
	w := newWorld(t)
	if _, err := w.socket(t, guest); err == nil || !strings.Contains(err.Error(), "not in its cage") {
		t.Fatalf("taking a socket outside of the cage: %v", err)
	}
	w.caged.Store(true)
	w.doors.serve()
	control := talk(t, w.supervisor, "control", nil)
	apply := func(s feed.State) {
		t.Helper()
		if err := control.Call(t.Context(), feed.Policies, s, nil); err != nil {
			t.Fatal(err)
		}
	}
	apply(withGuest(1))
	dial, path := w.dialSocket(t)
	if got := tunnel(t, dial(), "evil.test:443", ""); got != http.StatusForbidden {
		t.Errorf("a host of no rule: %d", got)
	}
	open := dial()
	if got := tunnel(t, open, "good.test:443", ""); got != http.StatusOK {
		t.Fatalf("an allowed host: %d", got)
	}
	apply(withGuest(2)) // nothing changes for it
	open.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := open.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("another revision ended it: %v", err)
	}
	apply(policy(3, "good.test"))
	open.SetReadDeadline(time.Now().Add(patience))
	if _, err := open.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("its connection goes on: %v", err)
	}
	if nc, err := net.Dial("unix", path); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			nc.Close()
		}
		t.Errorf("its socket is served on: %v", err)
	}
}

// certificate is one for localhost, in PEM, and who trusts it.
func certificate(t *testing.T) (certificate, key string, roots *x509.CertPool) {
	t.Helper()
	ca := egresstest.NewCA(t)
	leaf := ca.Leaf(t, "localhost")
	secret, err := x509.MarshalPKCS8PrivateKey(leaf.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Certificate[0]}))
	return certificate, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})), ca.Pool()
}

func TestNetworkDoorAsksForTheCredential(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.(*net.TCPListener).File()
	l.Close()
	if err != nil {
		t.Fatal(err)
	}
	chain, key, roots := certificate(t)
	if err := w.doors.listen(role.EdgeStart{Doors: role.EdgeDoors{HTTP: true, Name: "localhost", Certificate: chain, Key: key}}, []*os.File{f}); err != nil {
		t.Fatal(err)
	}
	w.caged.Store(true)
	w.doors.serve()
	control := talk(t, w.supervisor, "control", nil)
	signs := feed.DoorKey{Version: 1, Key: []byte(strings.Repeat("k", 32))}
	password, err := credentials.Mint(credentials.Key{Version: 1, Secret: signs.Key}, credentials.Claims{Sandbox: guest, Incarnation: 1, Door: credentials.HTTP,
		Source: netip.MustParseAddr("127.0.0.1"), Expires: time.Now().Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	right := "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(guest+":"+password)) + "\r\n"
	ask := func(field string) int {
		t.Helper()
		nc, err := tls.Dial("tcp4", l.Addr().String(), &tls.Config{RootCAs: roots, ServerName: "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		return tunnel(t, nc, "good.test:443", field)
	}
	for i, c := range []struct {
		name  string
		state feed.State
		field string
		want  int
	}{
		{"before any policy", feed.State{}, right, 407},
		{"without the key", withGuest(1), right, 407},
		{"with it", withGuest(2, signs), right, 200},
		{"and no password", withGuest(3, signs), "", 407},
		{"with a later key beside it", withGuest(4, feed.DoorKey{Version: 2, Key: []byte(strings.Repeat("l", 32))}, signs), right, 200},
		{"after its time", withGuest(5, feed.DoorKey{Version: 2, Key: []byte(strings.Repeat("l", 32))}), right, 407},
		{"of a sandbox that is gone", policy(6, "good.test"), right, 407},
	} {
		if i > 0 {
			if err := control.Call(t.Context(), feed.Policies, c.state, nil); err != nil {
				t.Fatal(err)
			}
		}
		if got := ask(c.field); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestNewcomersAreBounded: what comes by a sandbox's own socket and says nothing holds up that sandbox alone, and is of its org's share.
func TestNewcomersAreBounded(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	w.doors.serve()
	control := talk(t, w.supervisor, "control", nil)
	if err := control.Call(t.Context(), feed.Policies, withGuest(1), nil); err != nil {
		t.Fatal(err)
	}
	dial, _ := w.dialSocket(t)
	for n := 1 << 24; n > 0; n /= 2 {
		for w.flows.TakeDescriptors(org, n) {
		}
	}
	late := dial()
	late.SetReadDeadline(time.Now().Add(firstByteLimit / 2)) // by itself it would be closed later
	if _, err := late.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("with the org's share used up: %v", err)
	}
	w.flows.GiveDescriptors(org, 1<<10)
	if got := tunnel(t, dial(), "evil.test:443", ""); got != http.StatusForbidden {
		t.Errorf("with some of it back: %d", got)
	}

	var silent []net.Conn
	for range newcomers {
		silent = append(silent, dial())
	}
	late = dial()
	fmt.Fprint(late, "CONNECT evil.test:443 HTTP/1.1\r\nHost: evil.test:443\r\n\r\n")
	late.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
	if _, err := late.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("one more than may wait is served: %v", err)
	}
	for _, nc := range silent {
		nc.Close()
	}
	late.SetReadDeadline(time.Now().Add(patience))
	if resp, err := http.ReadResponse(bufio.NewReader(late), nil); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Fatalf("once they left: %v", err)
	}
}
