package clienthello

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// hello builds a ClientHello in one record from raw extensions.
func hello(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 0x01, 1, 0)
	body = append(body, vec16(bytes.Join(extensions, nil))...)
	return record(message(body))
}

func message(body []byte) []byte {
	return append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
}

func record(b []byte) []byte {
	return append([]byte{22, 3, 1, byte(len(b) >> 8), byte(len(b))}, b...)
}

// split spreads the one record in b over records of n bytes.
func split(b []byte, n int) []byte {
	var out []byte
	for b = b[recordHeader:]; len(b) > 0; {
		m := min(n, len(b))
		out = append(out, record(b[:m])...)
		b = b[m:]
	}
	return out
}

func vec16(b []byte) []byte { return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...) }

func ext(kind uint16, data []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, kind), vec16(data)...)
}

func sni(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(append(list, 0), vec16([]byte(n))...)
	}
	return ext(extServerName, vec16(list))
}

func alpn(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(append(list, byte(len(n))), n...)
	}
	return ext(extALPN, vec16(list))
}

func TestHelloSaysNameProtocolsAndECH(t *testing.T) {
	grease := ext(0x0a0a, nil)
	tests := []struct {
		name  string
		in    []byte
		host  string
		alpn  []string
		ech   bool
		exact error
	}{
		{name: "a name", in: hello(sni("good.test")), host: "good.test"},
		{name: "name and protocols", in: hello(grease, sni("good.test"), alpn("h2", "http/1.1")), host: "good.test", alpn: []string{"h2", "http/1.1"}},
		{name: "no name", in: hello(grease)},
		{name: "no extensions", in: hello()},
		{name: "ech outer", in: hello(sni("outer.test"), ext(extECH, []byte{0, 1, 2})), host: "outer.test", ech: true},
		{name: "old esni", in: hello(sni("outer.test"), ext(extESNI, nil)), host: "outer.test", ech: true},
		{name: "sixteen KiB of key share", in: hello(ext(51, make([]byte, 16100)), sni("good.test")), host: "good.test"},
		{name: "forty KiB over three records", in: split(hello(ext(51, make([]byte, 40000)), sni("good.test")), maxRecord), host: "good.test"},
		{name: "bytes after the record", in: append(hello(sni("good.test")), 23, 3, 3, 0, 1, 0), host: "good.test"},
		{name: "plain HTTP", in: []byte("GET / HTTP/1.1\r\n"), exact: ErrNotTLS},
		{name: "SSH", in: []byte("SSH-2.0-x"), exact: ErrNotTLS},
		{name: "SSLv2", in: []byte{0x80, 0x2e, 1, 3, 1}, exact: ErrNotTLS},
		{name: "a certificate message", in: record([]byte{11, 0, 0, 0}), exact: ErrMalformed},
		{name: "half of it", in: hello(sni("good.test"))[:30], exact: ErrIncomplete},
		{name: "nothing", in: nil, exact: ErrIncomplete},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h, err := Parse(tt.in)
			if !errors.Is(err, tt.exact) {
				t.Fatalf("error %v, want %v", err, tt.exact)
			}
			if string(h.ServerName) != tt.host || h.ECH != tt.ech {
				t.Errorf("got name %q, ECH %v; want %q, %v", h.ServerName, h.ECH, tt.host, tt.ech)
			}
			if diff := cmp.Diff(tt.alpn, h.Protocols()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAmbiguousHelloIsRefused(t *testing.T) {
	nul := "good.test\x00.evil.test"
	tests := map[string][]byte{
		"two server_name extensions":  hello(sni("good.test"), sni("evil.test")),
		"two names in one extension":  hello(sni("good.test", "evil.test")),
		"an extension twice":          hello(sni("good.test"), ext(99, nil), ext(99, nil)),
		"empty name":                  hello(sni("")),
		"NUL in the name":             hello(sni(nul)),
		"space in the name":           hello(sni("good.test ")),
		"bytes over 126 in the name":  hello(sni("g\xc3\xb6od.test")),
		"name of another kind":        hello(ext(extServerName, vec16(append([]byte{1}, vec16([]byte("good.test"))...)))),
		"name longer than its list":   hello(ext(extServerName, []byte{0, 3, 0, 0, 9})),
		"bytes after the name list":   hello(ext(extServerName, append(vec16(append([]byte{0}, vec16([]byte("good.test"))...)), 0))),
		"a message behind the hello":  record(append(hello(sni("good.test"))[recordHeader:], 1, 0, 0, 0)),
		"an empty record":             append(record(nil), hello(sni("good.test"))...),
		"bytes after the extensions":  record(message(append(hello(sni("good.test"))[recordHeader+messageHeader:], 0))),
		"an empty ALPN name":          hello(sni("good.test"), alpn("")),
		"an empty ALPN list":          hello(sni("good.test"), alpn()),
		"an ALPN list cut off":        hello(sni("good.test"), ext(extALPN, []byte{0, 9, 2, 'h', '2'})),
		"bytes after the ALPN list":   hello(sni("good.test"), ext(extALPN, append(vec16([]byte("\x02h2")), 0))),
		"more extensions than anyone": hello(manyExtensions(maxExtensions + 1)...),
	}
	if h, err := Parse(hello(sni("good.test"), ext(99, nil), ext(98, nil))); err != nil || string(h.ServerName) != "good.test" {
		t.Fatalf("the allowed twin: %q, %v", h.ServerName, err)
	}
	if _, err := Parse(hello(manyExtensions(maxExtensions)...)); err != nil {
		t.Fatalf("the allowed twin with many extensions: %v", err)
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			if h, err := Parse(in); !errors.Is(err, ErrMalformed) {
				t.Errorf("accepted as %q: %v", h.ServerName, err)
			}
		})
	}
}

func manyExtensions(n int) [][]byte {
	var list [][]byte
	for i := range n {
		list = append(list, ext(uint16(1000+i), nil))
	}
	return list
}

func TestHelloOverSegmentsAndRecords(t *testing.T) {
	whole := hello(ext(51, make([]byte, 3000)), sni("good.test"), alpn("h2"))
	for name, in := range map[string][]byte{
		"one record": whole, "ten records": split(whole, len(whole)/10+1), "one byte per record": split(whole, 1), "three-byte records": split(whole, 3),
	} {
		for way, r := range map[string]io.Reader{"at once": bytes.NewReader(in), "byte by byte": iotest.OneByteReader(bytes.NewReader(in))} {
			t.Run(name+", "+way, func(t *testing.T) {
				h, raw, err := Read(r)
				if err != nil || string(h.ServerName) != "good.test" {
					t.Fatalf("got %q, %v", h.ServerName, err)
				}
				if !bytes.Equal(raw, in) {
					t.Errorf("%d bytes came back of %d", len(raw), len(in))
				}
			})
		}
	}
}

func TestReadAfterKeepsWhatWasTaken(t *testing.T) {
	in := hello(sni("good.test"))
	h, raw, err := ReadAfter(in[:3], bytes.NewReader(in[3:]))
	if err != nil || string(h.ServerName) != "good.test" || !bytes.Equal(raw, in) {
		t.Errorf("got %q, %d of %d bytes, %v", h.ServerName, len(raw), len(in), err)
	}
	if _, raw, err := Read(bytes.NewReader(in[:20])); !errors.Is(err, io.ErrUnexpectedEOF) || len(raw) != 20 {
		t.Errorf("a client that leaves: %d bytes, %v", len(raw), err)
	}
}

func TestHelloIsBounded(t *testing.T) {
	endless := append(record(append([]byte{1, 0, 0xff, 0}, make([]byte, 1000)...)), bytes.Repeat(record([]byte{0}), 60000)...)
	tests := map[string][]byte{
		"announces 16 MiB":            record([]byte{1, 0xff, 0xff, 0xff, 0}),
		"never ends, in tiny records": endless,
	}
	for name, in := range tests {
		t.Run(name, func(t *testing.T) {
			_, raw, err := Read(bytes.NewReader(in))
			if !errors.Is(err, ErrTooLarge) || len(raw) > MaxSize {
				t.Errorf("%d bytes held, error %v", len(raw), err)
			}
		})
	}
	fits := split(hello(ext(51, make([]byte, 60000)), sni("good.test")), maxRecord)
	if h, _, err := Read(bytes.NewReader(fits)); err != nil || string(h.ServerName) != "good.test" {
		t.Errorf("just inside: %q, %v", h.ServerName, err)
	}
}

// captured returns what crypto/tls sends as a client.
func captured(t testing.TB, cfg *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(client, cfg).Handshake()
	}()
	_, raw, err := Read(server)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	<-done
	client.Close()
	return raw
}

func TestHelloOfCryptoTLS(t *testing.T) {
	raw := captured(t, &tls.Config{ServerName: "good.test", NextProtos: []string{"h2", "http/1.1"}})
	h, err := Parse(raw)
	if err != nil || string(h.ServerName) != "good.test" || h.ECH || !cmp.Equal(h.Protocols(), []string{"h2", "http/1.1"}) {
		t.Errorf("got %q, %q, %v, %v", h.ServerName, h.Protocols(), h.ECH, err)
	}
}

// FuzzClientHello holds crypto/tls beside us: what both accept, both read alike.
func FuzzClientHello(f *testing.F) {
	f.Add(captured(f, &tls.Config{ServerName: "good.test", NextProtos: []string{"h2"}}))
	f.Add(captured(f, &tls.Config{ServerName: "good.test", MaxVersion: tls.VersionTLS12}))
	f.Add(hello(sni("good.test"), alpn("h2", "http/1.1")))
	f.Add(split(hello(sni("good.test")), 5))
	f.Add(hello(sni("good.test"), sni("evil.test")))
	f.Add(hello(sni("good.test"), ext(extECH, []byte{0, 1, 2})))
	f.Add([]byte{22, 3, 1, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		ours, raw, err := Read(bytes.NewReader(in))
		if !bytes.HasPrefix(in, raw) {
			t.Fatal("the bytes returned are not the bytes read")
		}
		if again, err2 := Parse(raw); (err == nil) != (err2 == nil) || !bytes.Equal(again.ServerName, ours.ServerName) {
			t.Fatalf("Read and Parse differ: %v, %v", err, err2)
		}
		if err != nil {
			return
		}
		var theirs *tls.ClientHelloInfo
		cfg := &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
			theirs = i
			return nil, errors.New("seen enough")
		}}
		_ = tls.Server(readOnly{Reader: bytes.NewReader(in)}, cfg).Handshake()
		if theirs == nil {
			return // crypto/tls is stricter on things that carry no name
		}
		if theirs.ServerName != string(ours.ServerName) {
			t.Errorf("crypto/tls reads the name %q, we %q", theirs.ServerName, ours.ServerName)
		}
		if !cmp.Equal(theirs.SupportedProtos, ours.Protocols()) {
			t.Errorf("crypto/tls reads the protocols %q, we %q", theirs.SupportedProtos, ours.Protocols())
		}
	})
}

// readOnly is a connection that only ever says what is in its reader.
type readOnly struct {
	net.Conn
	io.Reader
}

func (c readOnly) Read(p []byte) (int, error)  { return c.Reader.Read(p) }
func (c readOnly) Write(p []byte) (int, error) { return len(p), nil }
func (c readOnly) Close() error                { return nil }

// BenchmarkParse watches the price of a name on the pass path: it must stay far below a handshake, without allocations.
func BenchmarkParse(b *testing.B) {
	raw := captured(b, &tls.Config{ServerName: "good.test", NextProtos: []string{"h2", "http/1.1"}})
	b.ReportAllocs()
	for b.Loop() {
		if h, err := Parse(raw); err != nil || len(h.ServerName) == 0 {
			b.Fatal(err)
		}
	}
}

func TestParseDoesNotAllocate(t *testing.T) {
	raw := captured(t, &tls.Config{ServerName: "good.test", NextProtos: []string{"h2"}})
	if n := testing.AllocsPerRun(100, func() { _, _ = Parse(raw) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
