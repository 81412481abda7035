package resolver_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portreeve.dev/egress"
	"portreeve.dev/egress/resolver"
)

func framed(t testing.TB, qs ...*dns.Msg) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, q := range qs {
		wire := pack(t, q)
		binary.Write(&b, binary.BigEndian, uint16(len(wire)))
		b.Write(wire)
	}
	return b.Bytes()
}

func TestSameVerdictsOverTCP(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	w.serve(t)
	c := &dns.Conn{Conn: w.dial(t, "tcp", boxA.Addr)}
	// Three at once, sent one byte at a time: pipelined, with every length split.
	for _, b := range framed(t, question("good.test.", dns.TypeA), question("evil.test.", dns.TypeA), question("good.test.", dns.TypeAXFR)) {
		if _, err := c.Conn.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	read := func() *dns.Msg {
		t.Helper()
		r, err := c.ReadMsg()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := read(); !address(r).IsValid() {
		t.Error(r)
	}
	wantNegative(t, read(), dns.RcodeNameError)
	wantCode(t, read(), dns.RcodeRefused)
	udp := address(w.ask(t, boxA.Addr, question("good.test.", dns.TypeA)))
	c.WriteMsg(question("good.test.", dns.TypeA))
	if r := read(); address(r) != udp {
		t.Errorf("over TCP %v, over UDP %v", address(r), udp)
	}
}

func TestTCPIsBounded(t *testing.T) {
	w := newWorld(t, resolver.Config{TCPConns: 2, TCPIdle: time.Second}, resolver.NamesConfig{})
	w.serve(t)
	first, second := &dns.Conn{Conn: w.dial(t, "tcp", boxA.Addr)}, &dns.Conn{Conn: w.dial(t, "tcp", boxA.Addr)}
	for _, c := range []*dns.Conn{first, second} {
		c.WriteMsg(question("good.test.", dns.TypeA))
		if r, err := c.ReadMsg(); err != nil || !address(r).IsValid() {
			t.Fatal(r, err)
		}
	}
	third := w.dial(t, "tcp", boxA.Addr)
	if n, err := third.Read(make([]byte, 1)); err == nil {
		t.Errorf("a third connection read %d bytes", n)
	}
	other := &dns.Conn{Conn: w.dial(t, "tcp", boxB.Addr)}
	other.WriteMsg(question("good.test.", dns.TypeA))
	if r, err := other.ReadMsg(); err != nil || !address(r).IsValid() {
		t.Error("the neighbour:", r, err)
	}
	first.Conn.Write([]byte{0}) // half a length, and then nothing
	if _, err := first.Conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a connection that sends no whole query: %v", err)
	}
	if _, err := second.Conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("an idle connection: %v", err)
	}
	long := w.dial(t, "tcp", boxA.Addr)
	long.Write([]byte{0xff, 0xff})
	if _, err := long.Read(make([]byte, 1)); err == nil {
		t.Error("a query of 64 KiB is awaited")
	}
}

// One org's connections leave room for another's, however many sandboxes it has.
func TestTCPIsSharedBetweenOrgs(t *testing.T) {
	w := newWorld(t, resolver.Config{AllTCPConns: 4, TCPConns: 4}, resolver.NamesConfig{})
	w.serve(t)
	answered := func(b egress.Binding) bool {
		t.Helper()
		c := &dns.Conn{Conn: w.dial(t, "tcp", b.Addr)}
		if err := c.WriteMsg(question("good.test.", dns.TypeA)); err != nil {
			return false
		}
		r, err := c.ReadMsg()
		return err == nil && address(r).IsValid()
	}
	if !answered(boxA) || !answered(boxA) {
		t.Fatal("not even half")
	}
	if answered(boxA) {
		t.Error("one org has more than it leaves")
	}
	if !answered(boxB) {
		t.Error("another org finds nothing")
	}
}

func TestTCPEndsWithItsSandbox(t *testing.T) {
	w := newWorld(t, resolver.Config{}, resolver.NamesConfig{})
	w.serve(t)
	c := &dns.Conn{Conn: w.dial(t, "tcp", boxA.Addr)}
	c.WriteMsg(question("good.test.", dns.TypeA))
	if _, err := c.ReadMsg(); err != nil {
		t.Fatal(err)
	}
	w.bindings.Unbind("sbx_a", boxA.Addr)
	next := boxA
	next.Sandbox = "sbx_next"
	if err := w.bindings.Bind(next); err != nil {
		t.Fatal(err)
	}
	c.WriteMsg(question("good.test.", dns.TypeA))
	if r, err := c.ReadMsg(); err == nil {
		t.Errorf("a connection of the address's last owner was answered %v", r)
	}
}
