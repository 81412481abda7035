package lab

import (
	"net/netip"

	"github.com/miekg/dns"
)

// Odd is what a name server may do wrong, or what is rare; the zero value does nothing of it.
type Odd struct {
	Stray  map[string]netip.Addr // addresses of other names, in the same answer
	Pad    int                   // bytes by which the answer is longer, in TXT records; over UDP it is then cut and says so
	Forged netip.Addr            // first a reply under another number that says this, over UDP
	Only   bool                  // nothing behind the forged one
	Loop   bool                  // after the question, a name that points to itself
}

// write answers by the book, or not.
func (o Odd) write(w dns.ResponseWriter, asked, reply *dns.Msg, tcp bool) {
	for name, addr := range o.Stray {
		head := dns.RR_Header{Name: dns.Fqdn(name), Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}
		reply.Answer = append(reply.Answer, &dns.A{Hdr: head, A: addr.AsSlice()})
	}
	for n := 0; n < o.Pad; n += 200 {
		head := dns.RR_Header{Name: reply.Question[0].Name, Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: 300}
		pad := make([]byte, 200)
		for i := range pad {
			pad[i] = 'x'
		}
		reply.Extra = append(reply.Extra, &dns.TXT{Hdr: head, Txt: []string{string(pad)}})
	}
	if o.Pad > 0 && !tcp {
		reply.Truncated, reply.Answer, reply.Extra = true, nil, nil
	}
	if o.Forged.IsValid() && !tcp {
		forged := reply.Copy()
		forged.Id ^= 0x5a5a
		head := dns.RR_Header{Name: reply.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}
		forged.Answer = []dns.RR{&dns.A{Hdr: head, A: o.Forged.AsSlice()}}
		w.WriteMsg(forged)
	}
	if o.Only && !tcp {
		return
	}
	if o.Loop {
		reply.Answer = nil
		data, err := reply.Pack()
		if err != nil || len(data) < 12 {
			return
		}
		// An answer whose owner is a pointer to its own first byte.
		data[6], data[7] = 0, 1
		at := len(data)
		data = append(data, 0xc0|byte(at>>8), byte(at), 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 198, 51, 100, 66)
		w.Write(data)
		return
	}
	w.WriteMsg(reply)
}
