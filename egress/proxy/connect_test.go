package proxy

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// serveTCP starts a plain server for a name or an address.
func (w *world) serveTCP(host string, port uint16, handle func(*net.TCPConn)) {
	w.t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan struct{})
	w.t.Cleanup(func() { ln.Close(); <-done })
	w.dialer.serve(host, port, ln.Addr().String())
	go func() {
		defer close(done)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			handle(nc.(*net.TCPConn))
			nc.Close()
		}
	}()
}

func greet(nc *net.TCPConn) {
	_, _ = io.WriteString(nc, "server first\n")
	b, _ := io.ReadAll(nc)
	_, _ = io.WriteString(nc, "got "+string(b))
}

func TestUnboundConnectionIsClosedUnread(t *testing.T) {
	w := newWorld(t, allowRaw)
	w.serveTCP("raw.test", 9000, greet)
	if got := exchangeRaw(t, w.connect("raw.test", 9000), "hello"); got != "server first\ngot hello" {
		t.Fatalf("the bound twin got %q", got)
	}
	w.decided()
	nc := w.ln.Dial(t, netip.MustParseAddr("10.200.0.3"), netip.AddrPortFrom(w.addrOf("raw.test"), 9000))
	nc.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := nc.Read(make([]byte, 1)); !isReset(err) {
		t.Errorf("read %d, %v; want a reset", n, err)
	}
	if w.proxy.Unbound() != 1 || len(w.dialer.dials()) != 1 {
		t.Errorf("unbound %d, dials %v", w.proxy.Unbound(), w.dialer.dials())
	}
	w.decisions(1, true)
}

func TestNoFreshSnapshotNoConnection(t *testing.T) {
	tests := []struct {
		name   string
		break_ func(*world)
		reason policies.Reason
	}{
		{"no policy", func(w *world) { w.policies.Fail(errors.New("unknown sandbox")) }, policies.ReasonNoPolicy},
		{"stale policy", func(w *world) { w.policies.Fail(ErrStalePolicy) }, policies.ReasonStalePolicy},
		{"no snapshot", func(w *world) { w.policies.Forget() }, policies.ReasonNoPolicy},
		{"a revision below the binding's", func(w *world) {
			w.bindings.Bind(egress.Binding{Sandbox: testSandbox, Org: testOrg, Incarnation: 1, Generation: 2, Addr: sandboxAddr, MinRevision: 9})
		}, policies.ReasonStalePolicy},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, allowRaw)
			w.serveTCP("raw.test", 9000, greet)
			if got := exchangeRaw(t, w.connect("raw.test", 9000), ""); got == "" {
				t.Fatal("the allowed twin got nothing")
			}
			w.decisions(1, true)
			tt.break_(w)
			if got := exchangeRaw(t, w.connect("raw.test", 9000), ""); got != "" {
				t.Errorf("got %q", got)
			}
			d := w.decisions(2, true)[1]
			if d.Verdict != "deny" || d.Reason != tt.reason.String() {
				t.Errorf("decision %s %s", d.Verdict, d.Reason)
			}
			if n := len(w.dialer.dials()); n != 1 {
				t.Errorf("%d dials", n)
			}
		})
	}
}

func TestSyntheticAddressWithoutNameIsNeverDialled(t *testing.T) {
	w := newWorld(t, `{"id": "range", "action": "allow", "cidrs": ["203.0.113.9/32"], "protocols": ["tcp"], "ports": [9000]}`)
	w.serveTCP("198.18.7.7", 9000, greet)
	w.serveTCP("203.0.113.9", 9000, greet)
	if got := exchangeRaw(t, w.connect("203.0.113.9", 9000), ""); got == "" {
		t.Fatal("the allowed twin got nothing")
	}
	w.decisions(1, true)
	if got := exchangeRaw(t, w.connect("198.18.7.7", 9000), ""); got != "" {
		t.Errorf("got %q", got)
	}
	if d := w.decisions(2, true)[1]; d.Reason != "no_name" || d.Addr != "198.18.7.7" {
		t.Errorf("decision %+v", d)
	}
	if n := len(w.dialer.dials()); n != 1 {
		t.Errorf("%d dials", n)
	}
}

func TestConnectionsByAddressNeedACIDRRule(t *testing.T) {
	const rules = allowGood + `,{"id": "net", "action": "allow", "cidrs": ["203.0.113.0/28"], "protocols": ["tcp"], "ports": ["9000-9001"]},
		{"id": "not", "action": "deny", "cidrs": ["203.0.113.7/32"]}`
	tests := []struct {
		host    string
		port    uint16
		allowed bool
		reason  string
	}{
		{"203.0.113.9", 9000, true, "allowed"},
		{"203.0.113.9", 9002, false, "no_rule"},
		{"203.0.113.16", 9000, false, "no_rule"},
		{"203.0.113.7", 9000, false, "rule_denied"},
		{"203.0.113.9", 443, false, "no_rule"},
	}
	for _, tt := range tests {
		w := newWorld(t, rules)
		w.serveTCP(tt.host, tt.port, greet)
		got := exchangeRaw(t, w.connect(tt.host, tt.port), "")
		d, _ := w.decided()
		if (got != "") != tt.allowed || d.Reason != tt.reason || d.Addr != tt.host || d.Level != levelAddress {
			t.Errorf("%s:%d: got %q, decision %+v", tt.host, tt.port, got, d)
		}
		if len(w.dialer.dials()) > 0 != tt.allowed {
			t.Errorf("%s:%d: dialled %v", tt.host, tt.port, w.dialer.dials())
		}
	}
}

// B115: where it can be told at once, a refusal looks like a closed port.
func TestDeniedTCPIsResetAtOnce(t *testing.T) {
	w := newWorld(t, allowRaw)
	nc := w.connect("raw.test", 9001)
	nc.SetReadDeadline(time.Now().Add(5 * time.Second))
	if _, err := nc.Read(make([]byte, 1)); !isReset(err) {
		t.Errorf("got %v, want a reset", err)
	}
	if d, _ := w.decided(); d.Reason != "no_rule" || d.Host != "raw.test" || d.Port != 9001 || d.Guidance == "" {
		t.Errorf("decision %+v", d)
	}
}

func TestRelayCountsAndHalfCloses(t *testing.T) {
	w := newWorld(t, allowRaw)
	w.serveTCP("raw.test", 5432, greet)
	got := exchangeRaw(t, w.connect("raw.test", 5432), strings.Repeat("x", 300_000))
	if len(got) != len("server first\ngot ")+300_000 {
		t.Errorf("%d bytes came back", len(got))
	}
	d, end := w.decided()
	if d.Host != "raw.test" || d.Protocol != "tcp" || d.Rule != "raw" || d.RuleLayer != "ceiling" || d.Version != 3 || d.Layer != "connect" || d.Level != levelAddress {
		t.Errorf("decision %+v", d)
	}
	if end.BytesOut != 300_000 || end.BytesIn != int64(len(got)) || end.Error != "" || end.Addr.String() != "203.0.113.1" {
		t.Errorf("end %+v", end)
	}
}

func TestUpstreamFINReachesClient(t *testing.T) {
	w := newWorld(t, allowRaw)
	w.serveTCP("raw.test", 9000, func(nc *net.TCPConn) {
		_, _ = io.WriteString(nc, "bye")
		_ = nc.CloseWrite()
		_, _ = io.Copy(io.Discard, nc)
	})
	nc := w.connect("raw.test", 9000)
	got, err := io.ReadAll(nc)
	if string(got) != "bye" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	nc.Close()
	if _, end := w.decided(); end.BytesIn != 3 {
		t.Errorf("end %+v", end)
	}
}

func TestDenyRuleOnAddressHoldsUnderEveryName(t *testing.T) {
	w := newWorld(t, allowRaw+`,{"id": "not", "action": "deny", "cidrs": ["203.0.113.66/32"]}`)
	w.serveTCP("raw.test", 9000, greet)
	if got := exchangeRaw(t, w.connect("raw.test", 9000), ""); got == "" {
		t.Fatal("the allowed twin got nothing")
	}
	w.decisions(1, true)
	w.dialer.addrs["raw.test"] = netip.MustParseAddr("203.0.113.66")
	if got := exchangeRaw(t, w.connect("raw.test", 9000), ""); got != "" {
		t.Errorf("got %q", got)
	}
	all := w.decisions(3, true) // the name is allowed, then its address is denied
	if end := w.recorder.closed[all[1].ID]; end.Error != "rule_denied" {
		t.Errorf("end %+v", end)
	}
	if d := all[2]; d.Verdict != "deny" || d.Reason != "rule_denied" || d.Rule != "not" || d.Addr != "203.0.113.66" {
		t.Errorf("denied as %+v", d)
	}
}

// Where a rule allows any bytes beside HTTPS, a server that speaks first is reached after a short wait.
func TestMixedProtocols(t *testing.T) {
	w := newWorld(t, `{"id": "mixed", "action": "allow", "hosts": ["mixed.test"], "protocols": ["https", "tcp"], "ports": [443]}`,
		func(c *Config) { c.Timeouts.FirstBytes = 20 * time.Millisecond })
	w.serveTCP("mixed.test", 443, greet)
	for _, send := range []string{"", "SSH-2.0-x\r\n", "GET / HTTP/1.1\r\n\r\n"} {
		nc := w.connect("mixed.test", 443)
		if send == "" { // say nothing at first
			line := make([]byte, len("server first\n"))
			if _, err := io.ReadFull(nc, line); err != nil {
				t.Fatal(err)
			}
			nc.Close()
			continue
		}
		if got := exchangeRaw(t, nc, send); got != "server first\ngot "+send {
			t.Errorf("got %q", got)
		}
	}
	for _, d := range w.decisions(3, true) {
		if d.Protocol != "tcp" {
			t.Errorf("decision %+v", d)
		}
	}
}
