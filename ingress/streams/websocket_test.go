package streams

import (
	"bufio"
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"portreeve.dev/ingress/route"
)

// frame is a server's frame.
func frame(op byte, payload string) []byte {
	b := []byte{0x80 | op}
	switch n := len(payload); {
	case n < 126:
		b = append(b, byte(n))
	case n < 1<<16:
		b = append(b, 126, byte(n>>8), byte(n))
	default:
		b = append(b, 127, 0, 0, 0, 0, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(b, payload...)
}

func masked(op byte, payload string) []byte {
	b := frame(op, payload)
	head := len(b) - len(payload)
	b[1] |= 0x80
	return append(append(b[:head:head], 1, 2, 3, 4), payload...)
}

func TestScannerKnowsWhereFramesEnd(t *testing.T) {
	big := string(bytes.Repeat([]byte{0x88}, 70_000)) // payload that looks like close frames
	var all []byte
	ends := map[int]bool{}
	for _, f := range [][]byte{frame(1, "hi"), frame(2, ""), frame(9, "x"), frame(2, big[:125]), frame(2, big[:126]), frame(2, big[:65535]), frame(2, big), masked(1, "hi"), masked(2, big), masked(9, "")} {
		all = append(all, f...)
		ends[len(all)] = true
	}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		var s scanner
		for at := 0; at < len(all); {
			n := min(1+r.IntN(1+r.IntN(9000)), len(all)-at)
			whole := s.advance(all[at : at+n])
			if whole > 0 && !ends[at+whole] {
				t.Fatalf("seed %d: a frame is said to end at %d", seed, at+whole)
			}
			for end := range ends {
				if end > at+whole && end <= at+n {
					t.Fatalf("seed %d: the end at %d was missed", seed, end)
				}
			}
			at += n
			if s.between() != ends[at] || s.closed {
				t.Fatalf("seed %d: at %d between is %v, closed %v", seed, at, s.between(), s.closed)
			}
		}
		s.advance(frame(opClose, "\x03\xe8"))
		if !s.closed {
			t.Fatal("the close frame was missed")
		}
	}
}

// FuzzScanner cuts the same bytes in two ways: where they are cut makes no difference.
func FuzzScanner(f *testing.F) {
	f.Add(append(frame(1, "hi"), masked(opClose, "\x03\xe8")...), 3)
	f.Add(frame(2, string(make([]byte, 300))), 2)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		at = min(max(at, 0), len(b))
		var one, two scanner
		whole := one.advance(b)
		first, second := two.advance(b[:at]), two.advance(b[at:])
		if second > 0 {
			first = at + second
		}
		if one != two || whole != first {
			t.Fatalf("cut at %d: %+v %d, whole: %+v %d", at, two, first, one, whole)
		}
	})
}

// ends are the four ends of a carried WebSocket.
type ends struct {
	t           *testing.T
	index       *Index
	client, app net.Conn // as the client and the app see them
	done        chan struct{}
}

func pair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	deadline := time.Now().Add(20 * time.Second)
	_ = a.SetDeadline(deadline)
	return a, b
}

func carry(t *testing.T) *ends {
	e := &ends{t: t, index: New(Config{}), done: make(chan struct{})}
	var client, app net.Conn
	e.client, client = pair(t)
	e.app, app = pair(t)
	s, err := e.index.Open(record(), 5, func(Reason) {})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(e.done)
		defer s.Close()
		Carry(s, End{client, bufio.NewReader(client)}, End{app, bufio.NewReader(app)})
	}()
	t.Cleanup(func() { e.index.Close(); <-e.done })
	return e
}

func (e *ends) write(c net.Conn, b []byte) {
	e.t.Helper()
	if _, err := c.Write(b); err != nil {
		e.t.Fatal(err)
	}
}

func (e *ends) read(c net.Conn, want []byte) {
	e.t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		e.t.Fatalf("read %q, %v, want %q", got, err, want)
	}
}

func (e *ends) eof(c net.Conn) {
	e.t.Helper()
	if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
		e.t.Fatalf("read %q, %v, want the end", rest, err)
	}
}

// end ends the stream as a change of its record does.
func (e *ends) end(change func(*route.Record)) { e.index.Changed(record(change)) }

func deleted(r *route.Record) { r.State = route.Gone }
func revoked(r *route.Record) { r.AuthEpoch++ }
func paused(r *route.Record)  { r.State = route.Paused }

func TestCloseFrameStandsBetweenFrames(t *testing.T) {
	t.Run("while nothing is sent", func(t *testing.T) {
		e := carry(t)
		e.write(e.client, masked(1, "hello"))
		e.read(e.app, masked(1, "hello"))
		e.write(e.app, frame(1, "hi"))
		e.read(e.client, frame(1, "hi"))
		e.end(deleted)
		e.read(e.client, frame(opClose, "\x03\xe9tunnel deleted"))
		e.write(e.client, masked(opClose, "\x03\xe9"))
		e.eof(e.client)
		e.client.Close()
		<-e.done
	})
	t.Run("in the middle of a frame", func(t *testing.T) {
		e := carry(t)
		whole := frame(2, "0123456789")
		e.write(e.app, whole[:5])
		e.read(e.client, whole[:5])
		e.end(revoked)
		e.write(e.app, append(whole[5:len(whole):len(whole)], frame(2, "never")[:3]...))
		e.read(e.client, whole[5:])
		e.read(e.client, frame(opClose, "\x03\xf0access revoked"))
		e.eof(e.client)
	})
	t.Run("after the app's own close frame", func(t *testing.T) {
		e := carry(t)
		e.write(e.app, frame(opClose, "\x03\xe8"))
		e.read(e.client, frame(opClose, "\x03\xe8"))
		e.end(paused)
		e.eof(e.client)
	})
	t.Run("an app that never ends its frame", func(t *testing.T) {
		e := carry(t)
		e.write(e.app, frame(2, "0123456789")[:5])
		e.read(e.client, frame(2, "0123456789")[:5])
		e.end(deleted)
		e.client.(*net.TCPConn).CloseWrite()
		e.eof(e.client)
		<-e.done
	})
	t.Run("a client that reads nothing", func(t *testing.T) {
		e := carry(t)
		go func() {
			for big := frame(2, string(make([]byte, 1<<16))); ; {
				if _, err := e.app.Write(big); err != nil {
					return
				}
			}
		}()
		e.read(e.client, frame(2, string(make([]byte, 1<<16))))
		e.end(deleted)
		<-e.done
	})
}

func TestEitherSideMayEnd(t *testing.T) {
	e := carry(t)
	e.write(e.app, frame(1, "bye"))
	e.app.Close()
	e.read(e.client, frame(1, "bye"))
	e.eof(e.client)
	e.client.Close()
	<-e.done
	e = carry(t)
	e.write(e.client, masked(1, "bye"))
	e.client.Close()
	e.read(e.app, masked(1, "bye"))
	e.eof(e.app)
	e.app.Close()
	<-e.done
}

// BenchmarkScanner watches what following frames adds to a copied byte.
func BenchmarkScanner(b *testing.B) {
	var small, big []byte
	for range 100 {
		small = append(small, frame(1, "a chat message of some forty characters")...)
	}
	big = frame(2, string(make([]byte, 1<<20)))
	for name, data := range map[string][]byte{"small": small, "big": big} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			var s scanner
			for b.Loop() {
				for rest := data; len(rest) > 0; rest = rest[min(16<<10, len(rest)):] {
					s.advance(rest[:min(16<<10, len(rest))])
				}
			}
		})
	}
}
