package proxy

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"
)

// provider is a server for many names, which says the name it is spoken to under; readers hide names for it with the list it returns.
func (w *world) provider(version uint16, reads bool) (list []byte) {
	w.t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		w.t.Fatal(err)
	}
	config := echConfig("pass.test", key.PublicKey())
	cfg := &tls.Config{MaxVersion: version, Certificates: []tls.Certificate{*w.realCA.leaf(w.t, "hidden.test"), *w.realCA.leaf(w.t, "pass.test")}}
	if reads {
		cfg.EncryptedClientHelloKeys = []tls.EncryptedClientHelloKey{{Config: config, PrivateKey: key.Bytes(), SendAsRetry: true}}
	}
	w.serveTCP("pass.test", 443, func(nc *net.TCPConn) {
		conn := tls.Server(nc, cfg)
		if conn.Handshake() == nil {
			_, _ = io.WriteString(conn, "this is "+conn.ConnectionState().ServerName)
			_ = conn.CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
		}
	})
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}

// hiding asks for pass.test in the clear and, if there is a list, for hidden.test inside. It returns whom it spoke with.
func (w *world) hiding(list []byte) (string, error) {
	w.t.Helper()
	cfg := &tls.Config{ServerName: "hidden.test", RootCAs: w.realCA.pool(), MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: list}
	conn := tls.Client(w.connect("pass.test", 443), cfg)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		return "", err
	}
	got, err := io.ReadAll(conn)
	return string(got), err
}

// B53: what hides a name passes to a server that reads none, and to no other; the twin shows that the other would have read it.
func TestECHIsRefused(t *testing.T) {
	w := newWorld(t, allowPass)
	list := w.provider(0, true)
	for range 2 { // asked, then known
		if got, err := w.hiding(list); !isAccessDenied(err) {
			t.Errorf("a hidden name: %q, %v", got, err)
		}
	}
	if n := len(w.dialer.dials()); n != 3 { // asked on the first, of which the verdict came after the second; then none but the third
		t.Errorf("dialled %v", w.dialer.dials())
	}
	for i, d := range w.decisions(4, true) {
		if want := []string{"allow", "deny"}[i%2]; d.Verdict != want || want == "deny" && d.Reason != "ech" {
			t.Errorf("decision %d: %+v", i, d)
		}
	}
	// Clients that hide nothing are served there, and so is everybody if the operator says so.
	conn, err := w.handshake("pass.test", &tls.Config{ServerName: "pass.test", RootCAs: w.realCA.pool()})
	if err != nil {
		t.Errorf("without a hidden name: %v", err)
	}
	conn.Close()
	w = newWorld(t, allowPass, func(c *Config) { c.AllowOuterECH = true })
	if got, err := w.hiding(w.provider(0, true)); got != "this is hidden.test" {
		t.Errorf("allowed by the operator: %q, %v", got, err)
	}
}

// grease is an extension of the right shape that means nothing.
func grease() []byte {
	b := append([]byte{0, 0, 1, 0, 1, 7, 0, 32}, make([]byte, 32)...)
	return append(append(b, 0, 144), make([]byte, 144)...)
}

// A browser's extension that means nothing harms nobody where nobody can read one: there the outer name is the name.
func TestGREASEPassesToServersThatReadNone(t *testing.T) {
	for name, version := range map[string]uint16{"TLS 1.3": 0, "TLS 1.2 at most": tls.VersionTLS12} {
		w := newWorld(t, allowPass)
		w.provider(version, false)
		raw := addExtension(helloFor(t, &tls.Config{ServerName: "pass.test"}), 0xfe0d, grease())
		for range 2 {
			nc := w.connect("pass.test", 443)
			nc.SetDeadline(time.Now().Add(10 * time.Second))
			if _, err := nc.Write(raw); err != nil {
				t.Fatal(err)
			}
			var head [5]byte // the server's hello: our extension was not in the transcript of the client that made it, so no more than that
			if _, err := io.ReadFull(nc, head[:]); err != nil || head[0] != 22 {
				t.Errorf("%s: got %v, %v", name, head, err)
			}
			nc.Close()
		}
		dials := len(w.dialer.dials())
		if want := map[string]int{"TLS 1.3": 3, "TLS 1.2 at most": 4}[name]; dials != want {
			t.Errorf("%s: %d dials, want %d", name, dials, want)
		}
		// A real one, for another server's key, is read by nobody here.
		other := newWorld(t, allowPass)
		list := other.provider(0, true)
		if got, err := w.hiding(list); err == nil {
			t.Errorf("%s: a hidden name: %q", name, got)
		}
	}
}

// A server that doesn't say is taken for one that reads hidden names.
func TestECHToASilentServerIsRefused(t *testing.T) {
	w := newWorld(t, allowPass)
	w.serveTCP("pass.test", 443, func(nc *net.TCPConn) { _, _ = io.WriteString(nc, "no TLS here\n") })
	if _, err := w.hiding(func() []byte { list, _ := echConfigList("pass.test"); return list }()); !isAccessDenied(err) {
		t.Errorf("got %v", err)
	}
	if d := w.decisions(2, true)[1]; d.Reason != "ech" {
		t.Errorf("decision %+v", d)
	}
}
