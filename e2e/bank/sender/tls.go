package main

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
	"time"
)

// secure makes TLS of the connection. Whose certificate comes back is told, not judged, unless the step says verify.
func (t *talk) secure(s *tlsStep) said {
	if s.Resume != "" {
		return t.resumed(s)
	}
	c := &shaped{Conn: t.conn, chunk: s.Chunk, records: s.Records}
	config := s.config()
	if s.ECH != "" {
		config.EncryptedClientHelloConfigList = echConfig(s.SNI)
		config.ServerName, config.MinVersion = s.ECH, tls.VersionTLS13
	}
	t.secrets.Reset()
	config.KeyLogWriter = &t.secrets
	client := tls.Client(c, config)
	if err := client.Handshake(); err != nil {
		return bad("%s", word(err))
	}
	t.use(client)
	return toldOf(client)
}

func (s *tlsStep) config() *tls.Config {
	c := &tls.Config{ServerName: s.SNI, NextProtos: s.ALPN, InsecureSkipVerify: !s.Verify}
	if s.Min13 {
		c.MinVersion = tls.VersionTLS13
	}
	for len(strings.Join(c.NextProtos, " ")) < s.Pad {
		c.NextProtos = append(c.NextProtos, fmt.Sprintf("padding-%04d-%s", len(c.NextProtos), strings.Repeat("x", 200)))
	}
	return c
}

func toldOf(client *tls.Conn) said {
	state := client.ConnectionState()
	w := "tls " + state.NegotiatedProtocol
	what := ok("%s", strings.TrimSpace(w))
	if len(state.PeerCertificates) > 0 {
		leaf := state.PeerCertificates[0]
		key := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
		what.Head = fmt.Sprintf("names: %s\r\nissuer: %s\r\nserial: %x\r\nkey: %s\r\nuntil: %s\r\nfrom: %s\r\n", strings.Join(leaf.DNSNames, ","), leaf.Issuer, leaf.SerialNumber,
			hex.EncodeToString(key[:8]), leaf.NotAfter.UTC().Format(time.RFC3339), leaf.NotBefore.UTC().Format(time.RFC3339))
	}
	if state.DidResume {
		what.Outcome += " resumed"
	}
	return what
}

// resumed makes a handshake under one name and uses its ticket under another, on a new connection to the same address.
func (t *talk) resumed(s *tlsStep) said {
	cache := &anyName{}
	first := (&tlsStep{SNI: s.Resume, ALPN: s.ALPN}).config()
	first.ClientSessionCache = cache
	client := tls.Client(t.conn, first)
	if err := client.Handshake(); err != nil {
		return bad("first: %s", word(err))
	}
	// A ticket of TLS 1.3 comes after the handshake; reading an answer takes it.
	fmt.Fprintf(client, "GET /v1/first HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", s.Resume)
	buf := make([]byte, 4096)
	for {
		if _, err := client.Read(buf); err != nil {
			break
		}
	}
	c, err := net.DialTimeout("tcp", t.conn.RemoteAddr().String(), t.limit)
	if err != nil {
		return bad("%s", word(err))
	}
	c.SetDeadline(time.Now().Add(t.limit))
	second := (&tlsStep{SNI: s.SNI, ALPN: s.ALPN}).config()
	second.ClientSessionCache = cache
	again := tls.Client(c, second)
	t.open = append(t.open, c)
	if err := again.Handshake(); err != nil {
		return bad("%s", word(err))
	}
	t.use(again)
	return toldOf(again)
}

// anyName is a session cache that gives the last ticket whatever the name.
type anyName struct{ last *tls.ClientSessionState }

func (a *anyName) Get(string) (*tls.ClientSessionState, bool) { return a.last, a.last != nil }

func (a *anyName) Put(_ string, s *tls.ClientSessionState) {
	if s != nil {
		a.last = s
	}
}

// shaped writes the hello, which is the first write, in small pieces.
type shaped struct {
	net.Conn
	chunk, records int
	begun          bool
}

func (s *shaped) Write(b []byte) (int, error) {
	if s.begun || s.chunk == 0 && s.records == 0 {
		s.begun = true
		return s.Conn.Write(b)
	}
	s.begun = true
	out := b
	if s.records > 0 && len(b) > 5 {
		out = nil
		for body, left := b[5:], s.records; len(body) > 0; left-- {
			n := max(1, len(body)/max(1, left))
			out = append(append(out, b[0], b[1], b[2], byte(n>>8), byte(n)), body[:n]...)
			body = body[n:]
		}
	}
	n := max(s.chunk, 1)
	if s.chunk == 0 {
		n = len(out)
	}
	for len(out) > 0 {
		n = min(n, len(out))
		if _, err := s.Conn.Write(out[:n]); err != nil {
			return 0, err
		}
		out = out[n:]
		time.Sleep(time.Millisecond / 4)
	}
	return len(b), nil
}

// echConfig is an ECH configuration under a public name, with a key that nobody has.
func echConfig(public string) []byte {
	key, _ := ecdh.X25519().GenerateKey(rand.Reader)
	pub := key.PublicKey().Bytes()
	body := []byte{7, 0, 0x20}
	body = append(binary.BigEndian.AppendUint16(body, uint16(len(pub))), pub...)
	body = append(body, 0, 4, 0, 1, 0, 1, 32, byte(len(public)))
	body = append(append(body, public...), 0, 0)
	config := binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(body)))
	config = append(config, body...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...)
}
