package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

const (
	allowPG  = `{"id": "pg", "action": "allow", "hosts": ["raw.test"], "protocols": ["postgres"]}`
	allowSSH = `{"id": "ssh", "action": "allow", "hosts": ["raw.test"], "protocols": ["ssh"]}`
)

func pgMessage(code uint32, more string) string {
	b := binary.BigEndian.AppendUint32(nil, uint32(8+len(more)))
	return string(binary.BigEndian.AppendUint32(b, code)) + more
}

var (
	sslRequest = pgMessage(80877103, "")
	gssRequest = pgMessage(80877104, "")
	cancelling = pgMessage(80877102, "12345678")
	startup    = pgMessage(3<<16, "user\x00me\x00\x00")
)

// postgres is a server that says yes to some requests for encryption, and then repeats what it is told.
func postgres(yes string, answer byte, then func(net.Conn)) func(*net.TCPConn) {
	return func(nc *net.TCPConn) {
		var head [8]byte
		for {
			if _, err := io.ReadFull(nc, head[:]); err != nil {
				return
			}
			switch string(head[:]) {
			case yes:
				_, _ = nc.Write([]byte{answer})
				then(nc)
				return
			case sslRequest, gssRequest:
				_, _ = nc.Write([]byte{'N'})
			default:
				_, _ = io.WriteString(nc, "opened ")
				_, _ = nc.Write(head[:])
				_, _ = io.Copy(nc, nc)
				return
			}
		}
	}
}

// PostgreSQL's requests for encryption are moved as the protocol has them, and what goes on behind is its own.
func TestPostgres(t *testing.T) {
	w := newWorld(t, allowPG)
	w.serveTCP("raw.test", 5432, postgres("", 0, nil))
	for name, steps := range map[string][]string{ // what the client says, each after the answer to the one before
		"in the clear":              {startup + "query"},
		"asks for TLS first":        {sslRequest, startup + "query"},
		"asks for GSSAPI, then TLS": {gssRequest, sslRequest, startup + "query"},
		"cancels":                   {cancelling},
	} {
		nc := w.connect("raw.test", 5432)
		nc.SetDeadline(time.Now().Add(10 * time.Second))
		for _, say := range steps[:len(steps)-1] {
			_, _ = io.WriteString(nc, say)
			var answer [1]byte
			if _, err := io.ReadFull(nc, answer[:]); err != nil || answer[0] != 'N' {
				t.Fatalf("%s: %q, %v", name, answer, err)
			}
		}
		last := steps[len(steps)-1]
		if got := exchangeRaw(t, nc, last); got != "opened "+last {
			t.Errorf("%s: got %q", name, got)
		}
	}
	for _, d := range w.decisions(4, true) {
		if d.Protocol != "postgres" || d.Level != levelAddress {
			t.Errorf("decision %+v", d)
		}
	}
}

// TLS inside is passed, asked for or at once, and names the host if it names any.
func TestPostgresOverTLS(t *testing.T) {
	for _, tt := range []struct {
		name, sni string
		direct    bool
		alpn      []string
		reason    string // empty: reached
	}{
		{"asked for", "raw.test", false, nil, ""},
		{"asked for, without a name", "", false, nil, ""},
		{"asked for, under another name", "evil.test", false, nil, "sni_mismatch"},
		{"at once", "raw.test", true, []string{"postgresql"}, ""},
		{"at once, as something else", "raw.test", true, []string{"h2"}, "not_postgres"},
		{"at once, as nothing", "raw.test", true, nil, "not_postgres"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, allowPG)
			inside := func(nc net.Conn) {
				conn := tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{*w.realCA.leaf(t, "raw.test")}, NextProtos: tt.alpn})
				if conn.Handshake() == nil {
					_, _ = io.WriteString(conn, "welcome")
					_ = conn.CloseWrite()
				}
			}
			w.serveTCP("raw.test", 5432, postgres(sslRequest, 'S', inside))
			nc := w.connect("raw.test", 5432)
			defer nc.Close()
			nc.SetDeadline(time.Now().Add(10 * time.Second))
			if tt.direct {
				w.serveTCP("raw.test", 5432, func(nc *net.TCPConn) { inside(nc) })
			} else {
				_, _ = io.WriteString(nc, sslRequest)
				if b, err := bufio.NewReaderSize(io.LimitReader(nc, 1), 16).ReadByte(); err != nil || b != 'S' {
					t.Fatalf("%q, %v", b, err)
				}
			}
			conn := tls.Client(nc, &tls.Config{ServerName: tt.sni, InsecureSkipVerify: true, NextProtos: tt.alpn})
			got, err := io.ReadAll(conn)
			if reached := string(got) == "welcome"; reached != (tt.reason == "") {
				t.Errorf("got %q, %v", got, err)
			}
			if tt.reason != "" {
				if d := w.decisions(2, true)[1]; d.Reason != tt.reason || d.Verdict != "deny" {
					t.Errorf("decision %+v", d)
				}
			}
		})
	}
}

// What isn't PostgreSQL doesn't pass for it, from either side.
func TestNotPostgresIsRefused(t *testing.T) {
	short := func(c *Config) { c.Timeouts.Hello = 150 * time.Millisecond }
	for name, tt := range map[string]struct{ send, reason string }{
		"HTTP":                     {"GET / HTTP/1.1\r\nHost: raw.test\r\n\r\n", "not_postgres"},
		"SSH":                      {"SSH-2.0-x\r\n", "not_postgres"},
		"an old version":           {pgMessage(2<<16, "x"), "not_postgres"},
		"a long request":           {pgMessage(80877103, "more"), "not_postgres"},
		"a startup without an end": {pgMessage(3<<16, strings.Repeat("x", 10000)), "not_postgres"},
		"half a request":           {sslRequest[:5], "timeout"},
		"nothing":                  {"", "timeout"},
	} {
		patience := func(*Config) {}
		if tt.reason == "timeout" {
			patience = short
		}
		w := newWorld(t, allowPG, patience)
		w.serveTCP("raw.test", 5432, greet)
		nc := w.connect("raw.test", 5432)
		_, _ = io.WriteString(nc, tt.send)
		nc.SetReadDeadline(time.Now().Add(5 * time.Second))
		if got, err := io.ReadAll(nc); len(got) > 0 || isTimeout(err) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		if d, _ := w.decided(); d.Reason != tt.reason || len(w.dialer.dials()) > 0 {
			t.Errorf("%s: decision %+v, dialled %v", name, d, w.dialer.dials())
		}
		nc.Close()
	}
	// Behind an answer too.
	for name, tt := range map[string]struct {
		answer byte
		then   string
	}{
		"a server that answers something else": {'H', ""},
		"no TLS behind a yes":                  {'S', "SSH-2.0-x\r\n..."},
		"something else behind a no":           {'N', "SSH-2.0-x\r\n..."},
		"TLS behind a no":                      {'N', string(helloFor(t, &tls.Config{ServerName: "raw.test", NextProtos: []string{"postgresql"}}))},
	} {
		w := newWorld(t, allowPG)
		var got bytes.Buffer
		w.serveTCP("raw.test", 5432, func(nc *net.TCPConn) {
			_, _ = io.ReadFull(nc, make([]byte, 8))
			_, _ = nc.Write([]byte{tt.answer})
			_, _ = io.Copy(&got, nc)
		})
		nc := w.connect("raw.test", 5432)
		_, _ = io.WriteString(nc, sslRequest)
		_, _ = io.ReadFull(nc, make([]byte, 1))
		_, _ = io.WriteString(nc, tt.then)
		nc.SetReadDeadline(time.Now().Add(5 * time.Second))
		_, _ = io.Copy(io.Discard, nc)
		if d := w.decisions(2, true)[1]; d.Reason != "not_postgres" || d.Verdict != "deny" {
			t.Errorf("%s: decision %+v", name, d)
		}
		nc.Close()
	}
}

// Nothing goes on to a PostgreSQL server that ends without an answer.
func TestPostgresEndsWithoutAnAnswer(t *testing.T) {
	w := newWorld(t, allowPG)
	behind := make(chan string, 1)
	w.serveTCP("raw.test", 5432, func(nc *net.TCPConn) {
		_, _ = io.ReadFull(nc, make([]byte, len(sslRequest)))
		_ = nc.CloseWrite()
		more, _ := io.ReadAll(nc)
		behind <- string(more)
	})
	if got := exchangeRaw(t, w.connect("raw.test", 5432), sslRequest+"SSH-2.0-x\r\n"); got != "" {
		t.Errorf("got %q", got)
	}
	if more := <-behind; more != "" {
		t.Errorf("%q went on", more)
	}
	if _, end := w.decided(); end.Error == "" || end.BytesOut != int64(len(sslRequest)) {
		t.Errorf("end %+v", end)
	}
}

// SSH works whoever speaks first, and nothing else passes for it.
func TestSSH(t *testing.T) {
	server := func(banner string, first bool) func(*net.TCPConn) {
		return func(nc *net.TCPConn) {
			if first {
				_, _ = io.WriteString(nc, banner)
			}
			line, err := bufio.NewReader(nc).ReadString('\n')
			if err != nil {
				return
			}
			if !first {
				_, _ = io.WriteString(nc, banner)
			}
			_, _ = io.WriteString(nc, "client "+line)
		}
	}
	for _, banner := range []string{"SSH-2.0-server\r\n", "hello there\r\nSSH-2.0-server\r\n"} {
		for _, serverFirst := range []bool{true, false} {
			w := newWorld(t, allowSSH)
			w.serveTCP("raw.test", 22, server(banner, serverFirst))
			if got := exchangeRaw(t, w.connect("raw.test", 22), "SSH-2.0-client\r\n"); got != banner+"client SSH-2.0-client\r\n" {
				t.Errorf("got %q", got)
			}
			if d, _ := w.decided(); d.Protocol != "ssh" {
				t.Errorf("decision %+v", d)
			}
		}
		short := func(c *Config) { c.Timeouts.FirstBytes = 20 * time.Millisecond }
		w := newWorld(t, allowSSH, short) // a client that waits for the server
		w.serveTCP("raw.test", 22, server(banner, true))
		nc := w.connect("raw.test", 22)
		nc.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := io.ReadFull(nc, make([]byte, len(banner))); err != nil {
			t.Fatal(err)
		}
		if got := exchangeRaw(t, nc, "SSH-2.0-late\r\n"); got != "client SSH-2.0-late\r\n" {
			t.Errorf("late: got %q", got)
		}
	}
	for name, send := range map[string]string{"HTTP": "GET / HTTP/1.1\r\n\r\n", "TLS": string(helloFor(t, &tls.Config{ServerName: "raw.test"})), "PostgreSQL": startup} {
		w := newWorld(t, allowSSH)
		w.serveTCP("raw.test", 22, greet)
		if got := exchangeRaw(t, w.connect("raw.test", 22), send); got != "" {
			t.Errorf("%s: got %q", name, got)
		}
		if d, _ := w.decided(); d.Reason != "not_ssh" || len(w.dialer.dials()) > 0 {
			t.Errorf("%s: decision %+v", name, d)
		}
	}
	for name, says := range map[string]string{"a server of something else": "220 mail\r\n", "a server that says too much": strings.Repeat("x", 20<<10)} {
		w := newWorld(t, allowSSH)
		w.serveTCP("raw.test", 22, func(nc *net.TCPConn) {
			_, _ = bufio.NewReader(nc).ReadString('\n')
			_, _ = io.WriteString(nc, says)
			_ = nc.CloseWrite()
			_, _ = io.Copy(io.Discard, nc)
		})
		if got := exchangeRaw(t, w.connect("raw.test", 22), "SSH-2.0-client\r\n"); got != "" {
			t.Errorf("%s: got %q", name, got)
		}
		if d := w.decisions(2, true)[1]; d.Reason != "not_ssh" {
			t.Errorf("%s: decision %+v", name, d)
		}
	}
	// Both on one port: the client's first byte tells.
	w := newWorld(t, `{"id": "both", "action": "allow", "hosts": ["raw.test"], "protocols": ["ssh", "postgres"], "ports": [22]}`)
	w.serveTCP("raw.test", 22, postgres("", 0, nil))
	if got := exchangeRaw(t, w.connect("raw.test", 22), startup); got != "opened "+startup {
		t.Errorf("PostgreSQL: %q", got)
	}
	w.serveTCP("raw.test", 22, server("SSH-2.0-server\r\n", false))
	if got := exchangeRaw(t, w.connect("raw.test", 22), "SSH-2.0-client\r\n"); !strings.HasPrefix(got, "SSH-2.0-server") {
		t.Errorf("SSH: %q", got)
	}
}
