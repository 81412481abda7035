package dial_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portreeve.dev/egress/dial"
)

// A scripted server over TLS answers as the test wants, one connection after the other.
type scripted struct {
	dial.TLSServer
	conns atomic.Int64
}

// script starts one; serve gets each connection with its number, from one on.
func script(t *testing.T, serve func(n int64, c *dns.Conn)) *scripted {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config, roots := certified(t, dnsName)
	s := &scripted{TLSServer: dial.TLSServer{Addr: l.Addr().(*net.TCPAddr).AddrPort(), Name: dnsName, Roots: roots}}
	var mu sync.Mutex
	var open []net.Conn
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
			n := s.conns.Add(1)
			all.Go(func() { defer c.Close(); serve(n, &dns.Conn{Conn: tls.Server(c, config)}) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return s
}

// answerGood answers a question with the good address.
func answerGood(q *dns.Msg) *dns.Msg {
	r := new(dns.Msg).SetReply(q)
	r.Answer = rrs(q.Question[0].Qtype, q.Question[0].Name+" 0 IN A 127.0.0.2")
	return r
}

// serveAll answers every question at once.
func serveAll(c *dns.Conn) {
	for {
		q, err := c.ReadMsg()
		if err != nil {
			return
		}
		_ = c.WriteMsg(answerGood(q))
	}
}

// TestQuestionsShareAConnection: those that are asked together, answered in another order, and those that come later.
func TestQuestionsShareAConnection(t *testing.T) {
	const together = 5
	u := newUpstream(t)
	s := script(t, func(_ int64, c *dns.Conn) {
		var all []*dns.Msg
		for len(all) < together {
			q, err := c.ReadMsg()
			if err != nil {
				return
			}
			all = append(all, q)
		}
		for i := range all {
			_ = c.WriteMsg(answerGood(all[len(all)-1-i]))
		}
		serveAll(c)
	})
	d := tlsDialer(t, dial.Config{MixedCase: true}, s.TLSServer)
	var all sync.WaitGroup
	for i := range together {
		all.Go(func() {
			if a, err := reach(d, u.target(fmt.Sprintf("n%d.test", i))); err != nil || a != good {
				t.Errorf("question %d: %v, %v", i, a, err)
			}
		})
	}
	all.Wait()
	for range 3 {
		if _, err := reach(d, u.target("later.test")); err != nil {
			t.Error(err)
		}
	}
	if n := s.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestEndedConnectionIsReplaced: servers end what is idle, and what they ended is noticed at the next question only.
func TestEndedConnectionIsReplaced(t *testing.T) {
	u := newUpstream(t)
	s := script(t, func(_ int64, c *dns.Conn) {
		if q, err := c.ReadMsg(); err == nil {
			_ = c.WriteMsg(answerGood(q))
		}
		_, _ = c.ReadMsg() // the next one is not answered
	})
	d := tlsDialer(t, dial.Config{}, s.TLSServer)
	for i := range 3 {
		if a, err := reach(d, u.target("good.test")); err != nil || a != good {
			t.Errorf("question %d: %v, %v", i, a, err)
		}
	}
	if n := s.conns.Load(); n != 3 {
		t.Errorf("%d connections", n)
	}
	d.KeptForTest().ExpireForTest()
	if _, err := reach(d, u.target("good.test")); err != nil || s.conns.Load() != 4 {
		t.Errorf("after the idle time: %v, %d connections", err, s.conns.Load())
	}
	// A fresh one that ends is a failure: nobody asks for ever.
	none := script(t, func(_ int64, c *dns.Conn) { _, _ = c.ReadMsg() })
	if _, err := reach(tlsDialer(t, dial.Config{}, none.TLSServer), u.target("good.test")); err == nil || none.conns.Load() != 1 {
		t.Errorf("a server that never answers: %v, %d connections", err, none.conns.Load())
	}
}

// TestSilentConnectionIsLeft: after a question without an answer, the next one is asked on another connection.
func TestSilentConnectionIsLeft(t *testing.T) {
	u := newUpstream(t)
	s := script(t, func(n int64, c *dns.Conn) {
		if n > 1 {
			serveAll(c)
		}
		for {
			if _, err := c.ReadMsg(); err != nil {
				return
			}
		}
	})
	d := tlsDialer(t, dial.Config{TryTimeout: 2 * time.Second}, s.TLSServer) // of which the second question may take some
	_, err := reach(d, u.target("good.test"))
	wantKind(t, err, dial.ResolveTimeout)
	if a, err := reach(d, u.target("good.test")); err != nil || a != good || s.conns.Load() != 2 {
		t.Errorf("the next one: %v, %v, %d connections", a, err, s.conns.Load())
	}
}

// TestReplyToSomethingElseIsNone: it fails its question, and the connection with it.
func TestReplyToSomethingElseIsNone(t *testing.T) {
	u := newUpstream(t)
	for name, spoil := range map[string]func(r *dns.Msg){
		"another name": func(r *dns.Msg) { r.Question[0].Name = "evil.test." },
		"another type": func(r *dns.Msg) { r.Question[0].Qtype = dns.TypeTXT },
		"another case": func(r *dns.Msg) { r.Question[0].Name = strings.ToUpper(r.Question[0].Name) },
	} {
		s := script(t, func(n int64, c *dns.Conn) {
			if q, err := c.ReadMsg(); err == nil && n == 1 {
				r := answerGood(q)
				spoil(r)
				_ = c.WriteMsg(r)
			} else if err == nil {
				_ = c.WriteMsg(answerGood(q))
			}
			serveAll(c)
		})
		d := tlsDialer(t, dial.Config{MixedCase: true, TryTimeout: 2 * time.Second}, s.TLSServer)
		if _, err := reach(d, u.target("a-name-with-letters.test")); err == nil {
			t.Errorf("%s: it was taken", name)
		}
		if a, err := reach(d, u.target("a-name-with-letters.test")); err != nil || a != good || s.conns.Load() != 2 {
			t.Errorf("%s, the next one: %v, %v, %d connections", name, a, err, s.conns.Load())
		}
	}
}
