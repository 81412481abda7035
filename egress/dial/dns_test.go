package dial_test

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// A nameserver is a real DNS server on loopback, over UDP and TCP.
type nameserver struct {
	addr    netip.AddrPort
	queries atomic.Int64
	tcp     atomic.Int64
	mu      sync.Mutex
	zones   map[string]func(q *dns.Msg) []dns.RR // by name without the last dot, lower case
	raw     func(w dns.ResponseWriter, q *dns.Msg) bool
}

func newNameserver(t testing.TB) *nameserver {
	t.Helper()
	n := &nameserver{zones: make(map[string]func(*dns.Msg) []dns.RR)}
	l, u := onePort(t)
	n.addr = l.Addr().(*net.TCPAddr).AddrPort()
	for _, s := range []*dns.Server{{Listener: l, Handler: n}, {PacketConn: u, Handler: n}} {
		started, ended := make(chan struct{}), make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go func() { defer close(ended); s.ActivateAndServe() }()
		<-started
		t.Cleanup(func() { s.Shutdown(); <-ended })
	}
	return n
}

// onePort listens on one port over both protocols; a port that is free for one may be taken for the other.
func onePort(t testing.TB) (net.Listener, net.PacketConn) {
	t.Helper()
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		u, err := net.ListenPacket("udp", l.Addr().String())
		if err == nil {
			return l, u
		}
		l.Close()
	}
	t.Fatal("no port is free for both")
	return nil, nil
}

func (n *nameserver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	n.queries.Add(1)
	if w.LocalAddr().Network() == "tcp" {
		n.tcp.Add(1)
	}
	n.mu.Lock()
	raw, zone := n.raw, n.zones[strings.ToLower(strings.TrimSuffix(q.Question[0].Name, "."))]
	n.mu.Unlock()
	if raw != nil && raw(w, q) {
		return
	}
	m := new(dns.Msg)
	m.SetReply(q)
	if zone == nil {
		m.Rcode = dns.RcodeNameError
	} else {
		m.Answer = zone(q)
	}
	w.WriteMsg(m)
}

// intercept sees each query first, and says whether it has answered it, or wants it unanswered.
func (n *nameserver) intercept(f func(w dns.ResponseWriter, q *dns.Msg) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.raw = f
}

// zone sets what a name is answered.
func (n *nameserver) zone(name string, f func(q *dns.Msg) []dns.RR) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.zones[name] = f
}

// records answers with fixed records in zone file form; those of another type than asked, aliases apart, are left out.
func (n *nameserver) records(name string, lines ...string) {
	n.zone(name, func(q *dns.Msg) []dns.RR { return rrs(q.Question[0].Qtype, lines...) })
}

func rrs(qtype uint16, lines ...string) []dns.RR {
	var out []dns.RR
	for _, l := range lines {
		rr, err := dns.NewRR(l)
		if err != nil {
			panic(err)
		}
		if t := rr.Header().Rrtype; t == qtype || t == dns.TypeCNAME {
			out = append(out, rr)
		}
	}
	return out
}
