package resolver_test

import (
	"testing"

	"github.com/miekg/dns"

	"portreeve.dev/egress/resolver"
)

// FuzzMessage: whatever arrives, an answer is no longer than it may be, readable, to that query, and holds nothing but an
// address of the range, a name of the table, or a refusal.
func FuzzMessage(f *testing.F) {
	for _, name := range []string{"good.test.", "evil.test.", "16.0.18.198.in-addr.arpa.", "portreeve.internal.", "."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypePTR, dns.TypeANY} {
			q := question(name, qtype)
			f.Add(pack(f, q))
			q.SetEdns0(4096, true)
			f.Add(pack(f, q))
		}
	}
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01")) // a name that points to itself
	w := newWorld(f, resolver.Config{Rate: 1e9, Burst: 1e9}, resolver.NamesConfig{})
	f.Fuzz(func(t *testing.T, wire []byte) {
		for _, udp := range []bool{true, false} {
			answer := w.server.MessageForTest(boxA, wire, udp)
			w.recorder.take()
			if answer == nil {
				continue
			}
			if udp && len(answer) > 1232 || len(wire) < 12 || wire[2]&0x80 != 0 {
				t.Fatalf("an answer of %d bytes", len(answer))
			}
			r := new(dns.Msg)
			if err := r.Unpack(answer); err != nil {
				t.Fatalf("unreadable answer: %v", err)
			}
			if r.Id != uint16(wire[0])<<8|uint16(wire[1]) || !r.Response || len(r.Answer) > 1 {
				t.Fatalf("answer %v", r)
			}
			for _, rr := range r.Answer {
				switch rr := rr.(type) {
				case *dns.A:
					if !w.names.Contains(address(r)) {
						t.Fatalf("address %v", rr)
					}
				case *dns.PTR:
				default:
					t.Fatalf("answer %v", rr)
				}
			}
		}
	})
}

// BenchmarkMessage watches what one query costs beside its sockets and the disk: reading, judging, the record, the answer.
func BenchmarkMessage(b *testing.B) {
	for _, c := range []struct{ what, name string }{{"known name", "good.test."}, {"denied name", "evil.test."}, {"our own", "portreeve.internal."}} {
		b.Run(c.what, func(b *testing.B) {
			w := newWorld(b, resolver.Config{Rate: 1e9, Burst: 1e9}, resolver.NamesConfig{})
			wire := pack(b, question(c.name, dns.TypeA))
			b.ReportAllocs()
			for b.Loop() {
				if w.server.MessageForTest(boxA, wire, true) == nil {
					b.Fatal("no answer")
				}
			}
		})
	}
}
