package proxy

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"
)

var realAddr, sharedAddr = netip.MustParseAddr("203.0.113.20"), netip.MustParseAddr("203.0.113.21")

// newPinnedWorld is one in which the sandbox was given real addresses: one for good.test, and one for two names.
func newPinnedWorld(t *testing.T, rules string, change ...func(*Config)) *world {
	w := newWorld(t, rules, change...)
	w.names[realAddr], w.names[sharedAddr] = "good.test", "good.test clear.test raw.test"
	return w
}

// A connection to an address that was given for a name is to that name, and goes to that address; one to another goes nowhere.
func TestPinnedAddressIsItsName(t *testing.T) {
	w := newPinnedWorld(t, allowGood)
	w.upstream("good.test", 443, echo())
	get := func(addr string) (string, error) {
		conn := tls.Client(w.connect(addr, 443), &tls.Config{ServerName: "good.test", RootCAs: w.orgCA.pool()})
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if err := conn.Handshake(); err != nil {
			return "", err
		}
		fmt.Fprint(conn, "GET /x HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n")
		b, err := io.ReadAll(conn)
		return string(b), err
	}
	if got, err := get(realAddr.String()); err != nil || !strings.HasSuffix(got, "GET good.test /x ") {
		t.Errorf("got %q, %v", got, err)
	}
	if d, end := w.decided(); d.Host != "good.test" || d.Level != levelHTTP || end.Addr != realAddr {
		t.Errorf("decision %+v, end %+v", d, end)
	}
	if _, err := get("203.0.113.22"); err == nil {
		t.Error("an address that was given for nothing was reached")
	}
	// A rule on the address holds under the name.
	w.policies.Set(t, allowGood+`,{"id": "not", "action": "deny", "cidrs": ["203.0.113.20/32"]}`)
	if got, err := get(realAddr.String()); err != nil || !strings.Contains(got, "rule_denied") {
		t.Errorf("denied by address: %q, %v", got, err)
	}
	if n := len(w.dialer.dials()); n != 2 {
		t.Errorf("dialled %v", w.dialer.dials())
	}
}

// An address that was given for several names is the one that TLS or HTTP says; nothing else tells.
func TestSharedAddressNeedsAName(t *testing.T) {
	rules := strings.Join([]string{allowGood, allowClear, strings.Replace(allowRaw, "9000", "443, 80", 1)}, ",")
	w := newPinnedWorld(t, rules)
	w.upstream("good.test", 443, echo())
	w.upstream("clear.test", 80, echo())
	w.serveTCP("raw.test", 443, greet)
	conn := tls.Client(w.connect(sharedAddr.String(), 443), &tls.Config{ServerName: "good.test", RootCAs: w.orgCA.pool()})
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprint(conn, "GET /x HTTP/1.1\r\nHost: good.test\r\n\r\n")
	if resp, body := readAnswer(t, bufio.NewReader(conn)); resp.StatusCode != 200 || body != "GET good.test /x " {
		t.Errorf("by its server name: %d %q", resp.StatusCode, body)
	}
	conn.Close()
	clear := w.connect(sharedAddr.String(), 80)
	r := bufio.NewReader(clear)
	fmt.Fprint(clear, "GET /x HTTP/1.1\r\nX-First: 1\r\n")
	fmt.Fprint(clear, "Host: CLEAR.test\r\n\r\nGET /y HTTP/1.1\r\nHost: clear.test\r\n\r\nGET /z HTTP/1.1\r\nHost: good.test\r\n\r\n")
	for i, want := range []int{200, 200, 403} {
		if resp, body := readAnswer(t, r); resp.StatusCode != want {
			t.Errorf("request %d: %d %q", i, resp.StatusCode, body)
		}
	}
	clear.Close()
	w.decisions(4, true)
	hasty := newPinnedWorld(t, rules, func(c *Config) { c.Timeouts.Hello = 50 * time.Millisecond })
	for name, send := range map[string]string{
		"another name in TLS": string(helloFor(t, &tls.Config{ServerName: "evil.test"})),
		"no name in TLS":      string(helloFor(t, &tls.Config{InsecureSkipVerify: true})),
		"another Host":        "GET /x HTTP/1.1\r\nHost: evil.test\r\n\r\n",
		"two Hosts":           "GET /x HTTP/1.1\r\nHost: good.test\r\nHost: clear.test\r\n\r\n",
		"half a head":         "GET /x HTTP/1.1\r\nHost: good",
		"something else":      "SSH-2.0-x\r\n",
		"nothing":             "",
	} {
		w := w
		if name == "half a head" || name == "nothing" { // the rest of it is waited for
			w = hasty
		}
		dials := len(w.dialer.dials())
		w.recorder.mu.Lock()
		n := len(w.recorder.list)
		w.recorder.mu.Unlock()
		nc := w.connect(sharedAddr.String(), 443)
		_, _ = io.WriteString(nc, send)
		nc.SetReadDeadline(time.Now().Add(5 * time.Second))
		if got, err := io.ReadAll(nc); len(got) > 0 || isTimeout(err) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		if d := w.decisions(n+1, true)[n]; d.Reason != "name_shared" || len(w.dialer.dials()) != dials {
			t.Errorf("%s: decision %+v, dialled %v", name, d, w.dialer.dials())
		}
	}
}

// A rule for the address itself still holds for it, on what no rule for the name is about.
func TestRuleForAPinnedAddress(t *testing.T) {
	const net = `{"id": "net", "action": "allow", "cidrs": ["203.0.113.0/24"], "protocols": ["tcp"], "ports": [9000]}`
	w := newPinnedWorld(t, allowGood+","+net)
	for _, addr := range []netip.Addr{realAddr, sharedAddr} {
		w.serveTCP(addr.String(), 9000, greet)
		if got := exchangeRaw(t, w.connect(addr.String(), 9000), "x"); got != "server first\ngot x" {
			t.Errorf("%v: got %q", addr, got)
		}
	}
	for _, d := range w.decisions(2, true) {
		if d.Rule != "net" || d.Host != "" {
			t.Errorf("decision %+v", d)
		}
	}
	w.policies.Set(t, net+`,{"id": "not", "action": "deny", "hosts": ["good.test"]}`)
	if got := exchangeRaw(t, w.connect(realAddr.String(), 9000), "x"); got != "" {
		t.Errorf("a denied name: %q", got)
	}
}
