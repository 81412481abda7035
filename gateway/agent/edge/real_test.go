package edge

import (
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/role"
)

// nameserver answers every name below real.test; queries counts what it was asked.
func nameserver(t *testing.T, queries *atomic.Int64) string {
	t.Helper()
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	started, ended := make(chan struct{}), make(chan struct{})
	s := &dns.Server{PacketConn: u, NotifyStartedFunc: func() { close(started) }, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		queries.Add(1)
		m := new(dns.Msg).SetReply(q)
		for name, addr := range map[string]string{"real.test.": "203.0.113.7", "private.real.test.": "10.0.0.5", "own.real.test.": "127.0.0.1"} {
			if strings.EqualFold(q.Question[0].Name, name) {
				rr, _ := dns.NewRR(name + " 600 IN A " + addr)
				m.Answer = []dns.RR{rr}
			}
		}
		if m.Answer == nil {
			m.Rcode = dns.RcodeNameError
		}
		_ = w.WriteMsg(m)
	})}
	go func() { defer close(ended); _ = s.ActivateAndServe() }()
	<-started
	t.Cleanup(func() { _ = s.Shutdown(); <-ended })
	return u.LocalAddr().String()
}

// Under dns: real the dialer's servers are asked, under the floor and its exemptions, and the sandbox's table remembers the answer; for other
// names nobody is asked.
func TestRealNamesAreLookedUpByTheDialer(t *testing.T) {
	var queries atomic.Int64
	server := nameserver(t, &queries)
	w, s := serving(t, func(start *role.EdgeStart) { start.UpstreamDNS = []string{server} })
	state := policy(2)
	state.Orgs[0].Ceiling = feed.Policy{Version: 2, Document: json.RawMessage(`{"rules":[
		{"id":"real","action":"allow","hosts":["real.test","private.real.test","own.real.test","gone.real.test"],"dns":"real"},
		{"id":"plain","action":"allow","hosts":["plain.test"]}]}`)}
	if err := w.holder.Apply(state); err != nil {
		t.Fatal(err)
	}
	meet(t, w.supervisor, "node")
	r := lookup(t, s.tcp, boxA, "real.test")
	if got := addressIn(t, r); got.String() != "203.0.113.7" || r.Answer[0].Header().Ttl != 60 {
		t.Errorf("real.test: %v", r)
	}
	if names := w.names.Pinned(sbx, 1, netip.MustParseAddr("203.0.113.7"), time.Now()); len(names) != 1 || names[0] != "real.test" {
		t.Errorf("the address stands for %v", names)
	}
	before := queries.Load()
	for name, code := range map[string]int{"private.real.test": dns.RcodeNameError, "own.real.test": dns.RcodeNameError, "gone.real.test": dns.RcodeNameError} {
		if r := lookup(t, s.tcp, boxA, name); r.Rcode != code || len(r.Answer) != 0 {
			t.Errorf("%s: %v", name, r)
		}
	}
	if n := queries.Load(); n != before+3 {
		t.Errorf("%d queries for three names", n-before)
	}
	for _, name := range []string{"evil.test", "secret.evil.test", "plain.test", "other.real.test"} {
		lookup(t, s.tcp, boxA, name)
	}
	if n := queries.Load(); n != before+3 {
		t.Errorf("%d queries left for names that are denied or synthetic", n-before-3)
	}
}
