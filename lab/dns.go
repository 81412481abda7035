package lab

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// A Query is one question that reached the name server.
type Query struct {
	At   time.Time
	Name string // lower case, without the final dot
	Type string // A, AAAA, ...
	TCP  bool
	TLS  bool
	From string
}

// A Record is what the name server says about a name. Each query takes the next of Answers, round and round: a name
// that is rebound has several.
type Record struct {
	CNAME   string
	Answers [][]netip.Addr
	TTL     uint32
	Silent  bool // never answers
	Odd     Odd
}

// DNS is the lab's name server, authoritative for everything under test.
type DNS struct {
	Addr netip.AddrPort

	mu      sync.Mutex
	records map[string]Record
	turn    map[string]int
	queries []Query
	servers []*dns.Server
	wg      sync.WaitGroup
}

// At makes a record with one fixed answer.
func At(addrs ...netip.Addr) Record { return Record{Answers: [][]netip.Addr{addrs}, TTL: 30} }

func startDNS(ns *Namespace) (*DNS, error) {
	addr := func(s string) netip.Addr { return netip.MustParseAddr(s) }
	d := &DNS{Addr: netip.AddrPortFrom(dnsAddr, 53), turn: map[string]int{}}
	d.records = map[string]Record{
		"good.test": At(goodAddr),
		// Names that the README shows, so that it can be run as it stands.
		"example.com":      At(goodAddr),
		"postman-echo.com": At(goodAddr),

		"plain.test":  At(goodAddr),
		"api.test":    At(apiAddr),
		"*.wild.test": At(wildAddr),
		"tcp.test":    At(tcpAddr),
		"public.test": At(publicAddr),
		"evil.test":   At(evilAddr, evilAddr6),

		"wrongname.test":  At(badCertAddr), // its certificate is another host's
		"expired.test":    At(badCertAddr),
		"selfsigned.test": At(badCertAddr),

		"rebind.test":     {Answers: [][]netip.Addr{{goodAddr}, {addr("127.0.0.1")}}},
		"rebindevil.test": {Answers: [][]netip.Addr{{goodAddr}, {evilAddr}}},
		"loopback.test":   At(addr("127.0.0.1")),
		"private.test":    At(privateAddr),
		"metadata.test":   At(addr("169.254.169.254")),
		"mapped.test":     At(addr("::ffff:127.0.0.1")),
		"mixed.test":      At(goodAddr, addr("127.0.0.1")),
		"zero.test":       At(addr("0.0.0.0")),

		"alias.test":     {CNAME: "good.test", TTL: 30},
		"aliasevil.test": {CNAME: "evil.test", TTL: 30},
		"loop.test":      {CNAME: "loop.test", TTL: 30},
		"silent.test":    {Silent: true},
	}
	pc, err := ns.ListenPacket("udp", d.Addr.String())
	if err != nil {
		return nil, err
	}
	l, err := ns.Listen("tcp", d.Addr.String())
	if err != nil {
		pc.Close()
		return nil, err
	}
	d.serve(&dns.Server{PacketConn: pc, Handler: d})
	d.serve(&dns.Server{Listener: l, Handler: d})
	return d, nil
}

// StartDNSOverTLS has the name server answer over TLS too, and returns how the product's configuration names that.
func (l *Lab) StartDNSOverTLS(t TB) string {
	t.Helper()
	const name = "dns.company.test"
	at := netip.AddrPortFrom(l.DNS.Addr.Addr(), 853)
	cert, err := l.CA.Issue(time.Now().Add(time.Hour), name)
	if err != nil {
		t.Fatalf("a certificate for the name server: %v", err)
	}
	listener, err := l.Net.Listen("tcp", at.String())
	if err != nil {
		t.Fatalf("listening for DNS over TLS: %v", err)
	}
	l.DNS.serve(&dns.Server{Listener: tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{*cert}}), Net: "tcp-tls", Handler: l.DNS})
	return fmt.Sprintf("tls://%v#%s", at, name)
}

// serve returns once the server answers, so that closing it is never too early.
func (d *DNS) serve(s *dns.Server) {
	started := make(chan struct{})
	s.NotifyStartedFunc = func() { close(started) }
	d.servers = append(d.servers, s)
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		s.ActivateAndServe()
	}()
	<-started
}

func (d *DNS) close() error {
	var errs []error
	for _, s := range d.servers {
		errs = append(errs, s.Shutdown())
	}
	d.wg.Wait()
	return errors.Join(errs...)
}

// Set changes what is said about a name, or adds it.
func (d *DNS) Set(name string, r Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records[name] = r
	delete(d.turn, name)
}

// Queries returns the questions about name so far; about all names when it is "".
func (d *DNS) Queries(name string) []Query {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name == "" {
		return slices.Clone(d.queries)
	}
	var about []Query
	for _, q := range d.queries {
		if q.Name == name {
			about = append(about, q)
		}
	}
	return about
}

// ServeDNS answers one message.
func (d *DNS) ServeDNS(w dns.ResponseWriter, m *dns.Msg) {
	reply := new(dns.Msg)
	reply.SetReply(m)
	reply.Authoritative, reply.RecursionAvailable = true, true
	if len(m.Question) != 1 {
		reply.Rcode = dns.RcodeFormatError
		w.WriteMsg(reply)
		return
	}
	q := m.Question[0]
	_, tcp := w.RemoteAddr().(*net.TCPAddr)
	d.mu.Lock()
	name := strings.ToLower(strings.TrimSuffix(q.Name, "."))
	d.queries = append(d.queries, Query{At: time.Now(), Name: name, Type: dns.TypeToString[q.Qtype], TCP: tcp, TLS: overTLS(w), From: w.RemoteAddr().String()})
	silent := d.answer(reply, q.Name, name, q.Qtype)
	odd := d.records[name].Odd
	d.mu.Unlock()
	if !silent {
		odd.write(w, m, reply, tcp)
	}
}

// overTLS reports whether a question came over TLS.
func overTLS(w dns.ResponseWriter) bool {
	s, ok := w.(dns.ConnectionStater)
	return ok && s.ConnectionState() != nil
}

// answer follows aliases as a recursive server would, and reports whether the name stays silent.
func (d *DNS) answer(reply *dns.Msg, asked, name string, qtype uint16) (silent bool) {
	for range 8 {
		key := name
		r, ok := d.records[key]
		if !ok {
			_, parent, _ := strings.Cut(name, ".")
			key = "*." + parent
			r, ok = d.records[key]
		}
		head := dns.RR_Header{Name: asked, Class: dns.ClassINET, Ttl: r.TTL}
		switch {
		case !ok:
			reply.Rcode = dns.RcodeNameError
			return false
		case r.Silent:
			return true
		case r.CNAME != "":
			head.Rrtype = dns.TypeCNAME
			reply.Answer = append(reply.Answer, &dns.CNAME{Hdr: head, Target: dns.Fqdn(r.CNAME)})
			asked, name = dns.Fqdn(r.CNAME), r.CNAME
			continue
		}
		if len(r.Answers) == 0 {
			return false
		}
		now := r.Answers[d.turn[key]%len(r.Answers)]
		if qtype == dns.TypeA {
			d.turn[key]++
		}
		for _, a := range now {
			switch {
			case qtype == dns.TypeA && a.Is4():
				head.Rrtype = dns.TypeA
				reply.Answer = append(reply.Answer, &dns.A{Hdr: head, A: a.AsSlice()})
			case qtype == dns.TypeAAAA && a.Is6():
				head.Rrtype = dns.TypeAAAA
				reply.Answer = append(reply.Answer, &dns.AAAA{Hdr: head, AAAA: a.AsSlice()})
			}
		}
		return false
	}
	reply.Rcode = dns.RcodeServerFailure
	return false
}

// Record returns what is said about a name, without a turn of its answers.
func (d *DNS) Record(name string) Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.records[name]
}
