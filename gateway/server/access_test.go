package server

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/gateway/sandboxes"
	"portreeve.dev/gateway/webhooks"
)

// edgeOf gives a control its API, and returns the link on which its edge asks.
func edgeOf(t *testing.T, c *control) *link.Conn {
	t.Helper()
	floor, err := c.bareFloor()
	if err != nil {
		t.Fatal(err)
	}
	c.publisher, c.routes = &feed.Publisher{}, &feed.Publisher{}
	if c.sandboxes, err = sandboxes.New(sandboxes.Config{Store: c.store, Runner: runner{&c.node.Peer, c.authorities}, Guest: guests{&c.inward.Peer}, Feed: feeds{c.publisher, c.routes}, Log: c.log}); err != nil {
		t.Fatal(err)
	}
	c.api, err = api.New(api.Config{Store: c.store, Keyring: c.keyring, Sandboxes: c.sandboxes, Guest: guests{&c.inward.Peer}, Feed: feeds{c.publisher, c.routes}, Floor: floor, Authorities: c.authorities, Log: c.log})
	if err != nil {
		t.Fatal(err)
	}
	c.edge = &child.Sibling{Mux: link.NewMux()}
	c.registerAccess()
	return meet(t, supervise(t, child.Spec{Siblings: map[string]*child.Sibling{"edge": c.edge}}), "edge", nil)
}

// codeOf is the word that came over the link.
func codeOf(err error) string {
	var e *link.Error
	if !errors.As(err, &e) {
		return ""
	}
	return e.Code
}

// TestEdgeAsksOnlyAboutItsSandbox: each question names a sandbox and its org, and what the two do not have in the store is refused.
func TestEdgeAsksOnlyAboutItsSandbox(t *testing.T) {
	c, w := newControl(t)
	edge := edgeOf(t, c)
	one, two := w.Org("one"), w.Org("two")
	box, neighbour, theirs := w.Sandbox(one, ""), w.Sandbox(one, ""), w.Sandbox(two, "")
	d := decisions.Decision{ID: store.NewID("dec"), Time: time.Now(), Org: one.Principal.Org, Sandbox: box.ID, Layer: "http", Verdict: "deny", Reason: "no_rule", Host: "a.test"}
	if err := c.store.AppendDecisions(t.Context(), []decisions.Decision{d}); err != nil {
		t.Fatal(err)
	}
	who := func(b store.Sandbox, org string) role.AboutSandbox {
		return role.AboutSandbox{Sandbox: b.ID, Org: org, Incarnation: b.Incarnation}
	}
	mine := who(box, one.Principal.Org)
	var asked egress.Access
	if err := call(edge, role.ControlAsk, role.AccessAsk{AboutSandbox: mine, Ask: egress.Ask{Host: "a.test", Why: "because"}}, &asked); err != nil || asked.State != "open" {
		t.Fatalf("asking: %+v, %v", asked, err)
	}
	var trust role.Trust
	if err := call(edge, role.ControlTrust, mine, &trust); err != nil || !strings.Contains(trust.PEM, "BEGIN CERTIFICATE") || strings.Contains(trust.PEM, "KEY") {
		t.Errorf("the authority: %v", err)
	}
	var found decisions.Decision
	if err := call(edge, role.ControlDecision, role.DecisionQuery{AboutSandbox: mine, ID: d.ID}, &found); err != nil || found.Host != "a.test" {
		t.Errorf("its decision: %+v, %v", found, err)
	}
	older := mine
	older.Incarnation += 3
	for _, q := range []struct {
		name string
		who  role.AboutSandbox
		code [6]string // ask, access, decision, trust, pause, revoked
	}{
		{"a neighbour", who(neighbour, one.Principal.Org), [6]string{"", role.CodeNoAsk, role.CodeNoDecision, "", "-", role.CodeNoList}},
		{"another org's sandbox", who(theirs, two.Principal.Org), [6]string{"", role.CodeNoAsk, role.CodeNoDecision, "", "-", role.CodeNoList}},
		{"a sandbox with another's org", who(box, two.Principal.Org), [6]string{role.CodeNotRunning, role.CodeNotRunning, role.CodeNotRunning, role.CodeNotRunning, role.CodeNotRunning, role.CodeNotRunning}},
		{"another incarnation", older, [6]string{role.CodeNotRunning, role.CodeNotRunning, role.CodeNotRunning, role.CodeNotRunning, role.CodeNotRunning, role.CodeNotRunning}},
	} {
		for i, in := range []struct {
			method string
			body   any
		}{
			{role.ControlAsk, role.AccessAsk{AboutSandbox: q.who, Ask: egress.Ask{Host: "b.test", Why: "because"}}},
			{role.ControlAccess, role.AccessQuery{AboutSandbox: q.who, ID: asked.ID}},
			{role.ControlDecision, role.DecisionQuery{AboutSandbox: q.who, ID: d.ID}},
			{role.ControlTrust, q.who},
			{role.ControlPause, q.who},
			{role.ControlRevoked, role.RevokedQuery{AboutSandbox: q.who, ID: "00"}},
		} {
			if q.code[i] == "-" {
				continue // there is no node here to pause it
			}
			if err := call(edge, in.method, in.body, nil); codeOf(err) != q.code[i] {
				t.Errorf("%s as %s: %v, want %q", in.method, q.name, err, q.code[i])
			}
		}
	}
	// A wait without anybody to wait for ends at once.
	begun := time.Now()
	if err := call(edge, role.ControlAccess, role.AccessQuery{AboutSandbox: mine, ID: asked.ID, Wait: time.Hour}, &asked); err != nil || asked.Approver || time.Since(begun) > patience {
		t.Errorf("waiting: %+v, %v", asked, err)
	}
}

// TestWebhooksStayAboveTheFloor: whatever name leads to an address inside, no connection is made there.
func TestWebhooksStayAboveTheFloor(t *testing.T) {
	c, w := newControl(t)
	by := w.Org("one")
	var reached atomic.Int32
	inside := httptest.NewUnstartedServer(nil)
	inside.Config.ConnState = nil
	inside.Listener = counting{inside.Listener, &reached}
	inside.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	inside.StartTLS()
	t.Cleanup(inside.Close)
	port := netip.MustParseAddrPort(inside.Listener.Addr().String()).Port()

	zone := map[string]string{"loopback.test.": "127.0.0.1", "private.test.": "10.1.2.3", "metadata.test.": "169.254.169.254", "mapped.test.": "127.0.0.1"}
	udp, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	names := &dns.Server{PacketConn: udp, Handler: dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		r := new(dns.Msg).SetReply(q)
		if addr := zone[strings.ToLower(q.Question[0].Name)]; addr != "" && q.Question[0].Qtype == dns.TypeA {
			r.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 5}, A: net.ParseIP(addr)}}
		}
		_ = rw.WriteMsg(r)
	})}
	go names.ActivateAndServe()
	t.Cleanup(func() { names.Shutdown() })
	c.setup.UpstreamDNS = []string{udp.LocalAddr().String()}
	// An exemption for the private range, but another org's.
	c.setup.Exempt = []role.Exemption{{CIDR: "10.0.0.0/8", Orgs: []string{"two"}}}
	sender, err := c.newSender()
	if err != nil {
		t.Fatal(err)
	}
	id := store.NewID("whk")
	sealed, err := c.keyring.Seal(api.WebhookRecord(by.Principal.Org, id), []byte(webhooks.NewSecret()))
	if err != nil {
		t.Fatal(err)
	}
	for name := range zone {
		d := webhooks.Delivery{ID: "whd_1", Org: by.Principal.Org, Sealed: sealed, Body: "{}", Attempt: 1, Endpoint: webhooks.Endpoint{ID: id, Org: by.Principal.Org,
			URL: "https://" + strings.TrimSuffix(name, ".") + ":" + strconv.Itoa(int(port)) + "/", Timeout: 3 * time.Second}}
		if o := sender.Attempt(t.Context(), d); o.Delivered || o.Error != "not_reached" {
			t.Errorf("%s: %+v", name, o)
		}
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("%d connections were made inside", n)
	}
	// Without anybody to ask for names nothing is sent, and nothing breaks.
	c.setup.UpstreamDNS = nil
	if none, err := c.newSender(); none != nil || err != nil {
		t.Errorf("without resolvers: %v, %v", none, err)
	}
}

// counting counts the connections of a listener.
type counting struct {
	net.Listener
	n *atomic.Int32
}

func (l counting) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.n.Add(1)
	}
	return c, err
}
