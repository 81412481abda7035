package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// pieces writes the first thing that is written to it over many records and segments.
type pieces struct {
	net.Conn
	done bool
}

func (p *pieces) Write(b []byte) (int, error) {
	if p.done {
		return p.Conn.Write(b)
	}
	p.done = true
	return len(b), writePieces(p.Conn, b)
}

// writePieces writes a record as ten, byte by byte.
func writePieces(w io.Writer, record []byte) error {
	body := record[5:]
	size := len(body)/10 + 1
	for len(body) > 0 {
		n := min(size, len(body))
		for _, b := range append([]byte{22, 3, 1, byte(n >> 8), byte(n)}, body[:n]...) {
			if _, err := w.Write([]byte{b}); err != nil {
				return err
			}
		}
		body = body[n:]
	}
	return nil
}

// B52: hellos of every size and in every cut are read, on passed and on opened connections, up to 64 KiB.
func TestBigHellos(t *testing.T) {
	many := func(n int) (list []string) { // protocols, to make it long
		for i := range n {
			list = append(list, fmt.Sprintf("%0250d", i))
		}
		return append(list, "http/1.1")
	}
	rules := allowPass + "," + allowGood
	for _, host := range []string{"pass.test", "good.test"} {
		for name, protos := range map[string][]string{"post-quantum": {"http/1.1"}, "14 KiB": many(55)} {
			w := newWorld(t, rules)
			w.upstream(host, 443, echo())
			roots := map[string]*authority{"pass.test": w.realCA, "good.test": w.orgCA}[host].pool()
			nc := w.connect(host, 443)
			nc.SetNoDelay(true)
			nc.SetDeadline(time.Now().Add(10 * time.Second))
			conn := tls.Client(&pieces{Conn: nc}, &tls.Config{ServerName: host, RootCAs: roots, NextProtos: protos, CurvePreferences: []tls.CurveID{tls.X25519MLKEM768}})
			fmt.Fprintf(conn, "GET /x HTTP/1.1\r\nHost: %s\r\n\r\n", host)
			if resp, body := readAnswer(t, bufio.NewReader(conn)); resp.StatusCode != 200 || body != "GET "+host+" /x " {
				t.Errorf("%s, %s: %d %q", host, name, resp.StatusCode, body)
			}
			conn.Close()
			w.decisions(1, true)
		}
		w := newWorld(t, rules)
		w.upstream(host, 443, echo())
		hello := helloFor(t, &tls.Config{ServerName: host})
		// A message that says it has 70,000 bytes, in records of 16 KiB.
		message := append([]byte{1, 1, 0x11, 0x70}, hello[9:]...)
		message = append(message, make([]byte, 70_000)...)
		nc := w.connect(host, 443)
		go func() {
			for len(message) > 0 {
				n := min(len(message), 16<<10)
				if _, err := nc.Write(append([]byte{22, 3, 1, byte(n >> 8), byte(n)}, message[:n]...)); err != nil {
					return
				}
				message = message[n:]
			}
		}()
		nc.SetReadDeadline(time.Now().Add(10 * time.Second))
		if got, err := io.ReadAll(nc); string(got) != "\x15\x03\x03\x00\x02\x02\x32" && !isReset(err) {
			t.Errorf("%s, over 64 KiB: got %q, %v", host, got, err)
		}
		if d, _ := w.decided(); d.Reason != "parse_error" || len(w.dialer.dials()) > 0 {
			t.Errorf("%s, over 64 KiB: decision %+v", host, d)
		}
	}
}

// B81: a client that does nothing but change its keys is cut off.
func TestKeyUpdatesEnd(t *testing.T) {
	w := newWorld(t, allowGood)
	var log bytes.Buffer
	nc := w.connect("good.test", 443)
	nc.SetDeadline(time.Now().Add(10 * time.Second))
	conn := tls.Client(nc, &tls.Config{ServerName: "good.test", RootCAs: w.orgCA.pool(), KeyLogWriter: &log, MinVersion: tls.VersionTLS13})
	if err := conn.Handshake(); err != nil {
		t.Fatal(err)
	}
	if suite := conn.ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Fatalf("suite %x", suite)
	}
	var secret []byte
	for line := range strings.SplitSeq(log.String(), "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, _ = hex.DecodeString(f[2])
		}
	}
	go func() { _, _ = io.Copy(io.Discard, nc) }()
	sent := 0
	for range 100_000 {
		if _, err := nc.Write(keyUpdate(t, secret)); err != nil {
			break
		}
		secret = expand(t, secret, "traffic upd", 32)
		sent++
	}
	if sent == 100_000 {
		t.Error("all of them were read")
	}
}

// keyUpdate is the record that says so, the first one under the secret.
func keyUpdate(t *testing.T, secret []byte) []byte {
	block, err := aes.NewCipher(expand(t, secret, "key", 16))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	plain := []byte{24, 0, 0, 1, 0, 22} // key_update, update_not_requested; a handshake record
	head := []byte{23, 3, 3, 0, byte(len(plain) + aead.Overhead())}
	return aead.Seal(head, expand(t, secret, "iv", 12), plain, head)
}

// expand is HKDF-Expand-Label of RFC 8446, section 7.1, without a context.
func expand(t *testing.T, secret []byte, label string, n int) []byte {
	info := append([]byte{0, byte(n), byte(len(label) + 6)}, "tls13 "+label...)
	out, err := hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// heap is what is in use.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// B75: a head without an end costs no memory, in the clear and opened.
func TestEndlessHead(t *testing.T) {
	for _, front := range fronts {
		w := newWorld(t, allowGood+","+allowClear)
		conn := w.speak(front.host, front.port)
		before := heap()
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: %s\r\nA: ", front.host)
		chunk := bytes.Repeat([]byte("a"), 64<<10)
		sent := 0
		for range 2048 { // 128 MiB
			if _, err := conn.Write(chunk); err != nil {
				break
			}
			sent += len(chunk)
		}
		if after := heap(); after > before+8<<20 || sent > 64<<20 {
			t.Errorf("%s: %d bytes were taken, the heap grew by %d", front.name, sent, int64(after-before))
		}
		conn.Close()
		if d, _ := w.decided(); d.Reason != "head_too_large" {
			t.Errorf("%s: decision %+v", front.name, d)
		}
	}
}

// h2 opens an HTTP/2 connection by hand.
func (w *world) h2(host string) (net.Conn, *http2.Framer) {
	w.t.Helper()
	conn, err := w.handshake(host, &tls.Config{ServerName: host, RootCAs: w.orgCA.pool(), NextProtos: []string{"h2"}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(conn, http2.ClientPreface)
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		w.t.Fatal(err)
	}
	return conn, framer
}

func fields(list ...string) []byte {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for i := 0; i < len(list); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: list[i], Value: list[i+1]})
	}
	return b.Bytes()
}

// B75: continuations without an end are the end of the connection.
func TestContinuationFlood(t *testing.T) {
	w := newWorld(t, allowGood)
	w.upstream("good.test", 443, echo())
	conn, framer := w.h2("good.test")
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	before := heap()
	if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields(":method", "GET", ":scheme", "https", ":authority", "good.test", ":path", "/")}); err != nil {
		t.Fatal(err)
	}
	more := fields("x-a", strings.Repeat("~", 4000))
	var err error
	sent := 0
	for ; err == nil && sent < 50_000; sent++ {
		err = framer.WriteContinuation(1, false, more)
	}
	if after := heap(); sent == 50_000 || after > before+8<<20 {
		t.Errorf("%d continuations were taken, the heap grew by %d", sent, int64(after-before))
	}
	if len(w.dialer.dials()) > 0 {
		t.Errorf("dialled %v", w.dialer.dials())
	}
}

// HTTP/2 has no CONNECT and no TRACE either, and no fields that belong to a connection.
func TestH2RequestsAreStrict(t *testing.T) {
	for name, tt := range map[string]struct {
		fields []string
		status string // empty: the stream is reset
	}{
		"the twin that is fine": {[]string{":method", "GET", ":scheme", "https", ":authority", "good.test", ":path", "/"}, "200"},
		"CONNECT":               {[]string{":method", "CONNECT", ":authority", "good.test"}, "405"},
		"TRACE":                 {[]string{":method", "TRACE", ":scheme", "https", ":authority", "good.test", ":path", "/"}, "405"},
		"another host field":    {[]string{":method", "GET", ":scheme", "https", ":authority", "good.test", ":path", "/", "host", "evil.test"}, "4"},
		"a connection field":    {[]string{":method", "GET", ":scheme", "https", ":authority", "good.test", ":path", "/", "connection", "close"}, "4"},
		"a coding":              {[]string{":method", "POST", ":scheme", "https", ":authority", "good.test", ":path", "/", "transfer-encoding", "chunked"}, "4"},
		"two paths":             {[]string{":method", "GET", ":scheme", "https", ":authority", "good.test", ":path", "/", ":path", "/x"}, ""},
		"an upgrade":            {[]string{":method", "GET", ":scheme", "https", ":authority", "good.test", ":path", "/", "upgrade", "websocket"}, "4"},
		"two lengths":           {[]string{":method", "POST", ":scheme", "https", ":authority", "good.test", ":path", "/", "content-length", "1", "content-length", "2"}, "4"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, allowGood)
			w.upstream("good.test", 443, echo())
			_, framer := w.h2("good.test")
			if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields(tt.fields...), EndHeaders: true, EndStream: true}); err != nil {
				t.Fatal(err)
			}
			framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			status := ""
			for done := false; !done; {
				f, err := framer.ReadFrame()
				if err != nil {
					break
				}
				switch f := f.(type) {
				case *http2.MetaHeadersFrame:
					status, done = f.PseudoValue("status"), true
				case *http2.RSTStreamFrame, *http2.GoAwayFrame:
					done = true
				}
			}
			// Some of this the server of net/http refuses before it is a request: by a reset, or by an answer of 400.
			if !strings.HasPrefix(status, tt.status) && !(tt.status == "4" && status == "") {
				t.Errorf("status %q, want %q", status, tt.status)
			}
			if tt.status != "200" && len(w.dialer.dials()) > 0 {
				t.Errorf("dialled %v", w.dialer.dials())
			}
		})
	}
}

// h2Upstream answers every request on a stream with these fields and bytes, whatever HTTP/2 says about them.
func (w *world) h2Upstream(name string, data string, list ...string) {
	cfg := &tls.Config{Certificates: []tls.Certificate{*w.realCA.leaf(w.t, name)}, NextProtos: []string{"h2"}}
	w.proxy.memory.put(memoryKey{about: speaksH2, org: testOrg, host: name, port: 443}, true)
	accepted := make(chan net.Conn, 16)
	w.serveTCP(name, 443, func(nc *net.TCPConn) {
		accepted <- nc
		conn := tls.Server(nc, cfg)
		defer conn.Close()
		if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		framer := http2.NewFramer(conn, conn)
		_ = framer.WriteSettings()
		for {
			f, err := framer.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if !f.IsAck() {
					_ = framer.WriteSettingsAck()
				}
			case *http2.HeadersFrame:
				_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: fields(list...), EndHeaders: true})
				_ = framer.WriteData(f.StreamID, true, []byte(data))
			}
		}
	})
	w.t.Cleanup(func() { // before the server is waited for
		for {
			select {
			case nc := <-accepted:
				nc.Close()
			default:
				return
			}
		}
	})
}

// B67: what an HTTP/2 upstream says about framing and connections never reaches a client of HTTP/1.
func TestUpstreamH2FramingIsOurs(t *testing.T) {
	for name, list := range map[string][]string{
		"plain":              nil,
		"too long a length":  {"content-length", "500"},
		"too short a length": {"content-length", "2"},
		"two lengths":        {"content-length", "5", "content-length", "7"},
		"a coding":           {"transfer-encoding", "chunked"},
		"a connection field": {"connection", "close, x-hop"},
		"an upgrade":         {"upgrade", "websocket"},
		"a head in a value":  {"x-a", "b\r\nx-b: c"},
	} {
		w := newWorld(t, allowGood)
		w.h2Upstream("good.test", "hello", append([]string{":status", "200"}, list...)...)
		conn := w.speak("good.test", 443)
		fmt.Fprint(conn, "GET /x HTTP/1.1\r\nHost: good.test\r\n\r\nGET /y HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n")
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			if name == "plain" {
				t.Errorf("%s: %v", name, err)
			}
			conn.Close()
			continue // cut off: a client can't mistake it
		}
		body, err := io.ReadAll(resp.Body)
		whole := err == nil && string(body) == "hello" && resp.StatusCode == 200
		if name == "plain" && !whole || resp.StatusCode == 200 && err == nil && string(body) != "hello" {
			t.Errorf("%s: %d %q, %v", name, resp.StatusCode, body, err)
		}
		for _, field := range []string{"Transfer-Encoding", "Connection", "Upgrade", "X-B"} {
			if v := resp.Header[field]; len(v) > 0 && resp.StatusCode == 200 {
				t.Errorf("%s: the client saw %s: %q", name, field, v)
			}
		}
		if whole { // the next answer is where it should be
			if again, err := http.ReadResponse(r, nil); err != nil || again.StatusCode == 0 {
				t.Errorf("%s: the second answer: %v", name, err)
			} else {
				_, _ = io.Copy(io.Discard, again.Body)
			}
		}
		conn.Close()
	}
}

// B74: whoever is slow inside an opened connection is closed too, and nothing of it is left.
func TestDeadlinesInside(t *testing.T) {
	short := func(c *Config) { // the handshake has its time
		c.Timeouts.Head, c.Timeouts.Idle, c.Timeouts.HalfClosed = 100*time.Millisecond, time.Second, 10*time.Millisecond
	}
	h1 := []string{"http/1.1"}
	for name, tt := range map[string]struct {
		protos []string
		send   string
	}{
		"silent":                 {h1, ""},
		"half a head":            {h1, "GET / HTTP/1.1\r\nHost"},
		"half a second head":     {h1, "GET / HTTP/1.1\r\nHost: good.test\r\n\r\nGET"},
		"half a body":            {h1, "POST / HTTP/1.1\r\nHost: good.test\r\nContent-Length: 100\r\n\r\nhalf"},
		"half a chunk":           {h1, "POST / HTTP/1.1\r\nHost: good.test\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf"},
		"silent on HTTP/2":       {[]string{"h2"}, ""},
		"half a preface":         {[]string{"h2"}, http2.ClientPreface[:10]},
		"a preface and no more":  {[]string{"h2"}, http2.ClientPreface},
		"a head without its end": {[]string{"h2"}, http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + "\x00\x00\x01\x01\x01\x00\x00\x00\x01\x82"},
		"a body without its end": {[]string{"h2"}, http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" + h2Post()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, allowGood, short)
			w.upstream("good.test", 443, echo())
			conn, err := w.handshake("good.test", &tls.Config{ServerName: "good.test", RootCAs: w.orgCA.pool(), NextProtos: tt.protos})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, tt.send)
			conn.SetReadDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.ReadAll(conn); isTimeout(err) {
				t.Error("still open after 5 s")
			}
			w.nobodyIsLeft()
		})
	}
	// Byte by byte is no faster.
	for _, begin := range []string{"\x16\x03\x01\x02\x00\x01", "GET / HTTP/1.1\r\nHost: "} {
		w := newWorld(t, allowGood+","+allowClear, short, func(c *Config) { c.Timeouts.Hello = 150 * time.Millisecond })
		host, port := "good.test", uint16(443)
		if begin[0] == 'G' {
			host, port = "clear.test", 80
		}
		nc := w.connect(host, port)
		_, _ = io.WriteString(nc, begin)
		tick := time.NewTicker(20 * time.Millisecond)
		deadline := time.Now().Add(5 * time.Second)
		for _, err := nc.Write([]byte("a")); err == nil && time.Now().Before(deadline); _, err = nc.Write([]byte("a")) {
			<-tick.C
		}
		tick.Stop()
		if !time.Now().Before(deadline) {
			t.Errorf("%q and then a byte at a time: still open after 5 s", begin)
		}
		nc.Close()
		w.nobodyIsLeft()
	}
}

// h2Post is a request whose body never comes.
func h2Post() string {
	var b bytes.Buffer
	framer := http2.NewFramer(&b, nil)
	_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true,
		BlockFragment: fields(":method", "POST", ":scheme", "https", ":authority", "good.test", ":path", "/", "content-length", "100")})
	return b.String()
}

// nobodyIsLeft waits until the proxy knows of no connection.
func (w *world) nobodyIsLeft() {
	w.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Second); ; <-tick.C {
		w.proxy.mu.Lock()
		n := len(w.proxy.live)
		w.proxy.mu.Unlock()
		if n == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%d connections are left", n)
		}
	}
}

// B76: a client of an opened connection may end its side behind its request, too.
func TestHalfClosedInside(t *testing.T) {
	w := newWorld(t, allowGood)
	w.upstream("good.test", 443, echo())
	conn := w.speak("good.test", 443).(*tls.Conn)
	fmt.Fprint(conn, "GET /x HTTP/1.1\r\nHost: good.test\r\n\r\n")
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(conn); !strings.HasSuffix(string(got), "\r\n\r\nGET good.test /x ") || err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %q, %v", got, err)
	}
	conn.Close()
	w.nobodyIsLeft()
}

// B13: the port that was connected to is the port that is dialled.
func TestOtherPortIsKept(t *testing.T) {
	w := newWorld(t, strings.Replace(allowGood, `"tls"`, `"ports": [8443], "tls"`, 1))
	w.upstream("good.test", 8443, echo())
	conn := tls.Client(w.connect("good.test", 8443), &tls.Config{ServerName: "good.test", RootCAs: w.orgCA.pool()})
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(conn, "GET /x HTTP/1.1\r\nHost: good.test:8443\r\n\r\nGET /y HTTP/1.1\r\nHost: good.test\r\n\r\n")
	r := bufio.NewReader(conn)
	if resp, body := readAnswer(t, r); resp.StatusCode != 200 || body != "GET good.test:8443 /x " {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
	if resp, body := readAnswer(t, r); resp.StatusCode != 403 {
		t.Errorf("without its port: %d %q", resp.StatusCode, body)
	}
	if dials := w.dialer.dials(); len(dials) != 1 || dials[0] != "good.test:8443" {
		t.Errorf("dialled %v", dials)
	}
}

// Answers that a client lets wait take no more memory here than one upstream connection is given.
func TestUnreadAnswersAreBounded(t *testing.T) {
	const streams = 32
	var moved atomic.Int64
	w := newWorld(t, allowGood)
	w.upstream("good.test", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		for piece := make([]byte, 32<<10); ; {
			n, err := rw.Write(piece)
			moved.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	client := w.client(true, w.orgCA.pool())
	client.Transport.(*http.Transport).HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 32 << 10, MaxReceiveBufferPerConnection: 64 << 10}
	for range streams {
		resp, err := client.Get("https://good.test/")
		if err != nil {
			t.Fatal(err)
		}
		if resp.ProtoMajor != 2 {
			t.Fatalf("answered by %s", resp.Proto)
		}
		defer resp.Body.Close()
	}
	deadline := time.Now().Add(10 * time.Second)
	for before := int64(-1); before != moved.Load() || before < upstreamBuffer/2 && time.Now().Before(deadline); { // until nothing moves any more
		before = moved.Load()
		<-time.After(300 * time.Millisecond)
	}
	// Beside what waits here there is what the sockets hold.
	if got := moved.Load(); got < upstreamBuffer/2 || got > upstreamBuffer+streams<<18 {
		t.Errorf("%d KiB of %d answers were taken that nobody reads", got>>10, streams)
	}
}

// lines counts what is logged.
type lines struct {
	slog.Handler
	n *atomic.Int64
}

func (l lines) Handle(context.Context, slog.Record) error { l.n.Add(1); return nil }

// What a sandbox does wrong fills no log, however often it does it.
func TestLogIsNotTheSandboxs(t *testing.T) {
	for name, spoil := range map[string]struct {
		change func(*Config)
		once   func(w *world)
	}{
		"handshakes that it breaks off": {func(*Config) {}, func(w *world) {
			if _, err := w.handshake("good.test", &tls.Config{ServerName: "good.test", RootCAs: x509.NewCertPool()}); err == nil {
				t.Fatal("an unknown authority was trusted")
			}
		}},
		"certificates that can't be had": {func(c *Config) { c.Certificates = nil }, func(w *world) {
			if _, err := w.handshake("good.test", &tls.Config{ServerName: "good.test", RootCAs: w.orgCA.pool()}); err == nil {
				t.Fatal("opened without a certificate")
			}
		}},
		"secrets that can't be had": {func(c *Config) {
			c.Injector = &injector{host: "good.test", err: errors.New("sealed")}
		}, func(w *world) {
			if resp, body := w.send("/v1/x", "", "X-Other", ""); resp.StatusCode != 503 {
				t.Fatalf("got %d %s", resp.StatusCode, body)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var said atomic.Int64
			w := newWorld(t, allowGood, spoil.change, func(c *Config) { c.Log = slog.New(lines{slog.NewTextHandler(io.Discard, nil), &said}) })
			w.upstream("good.test", 443, echo())
			begun := time.Now()
			for range 50 {
				spoil.once(w)
			}
			if n, most := said.Load(), 1+int64(time.Since(begun)/time.Second); n == 0 || n > most {
				t.Errorf("%d lines, want 1 to %d", n, most)
			}
		})
	}
}
