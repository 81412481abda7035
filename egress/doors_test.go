package egress_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"portreeve.dev/egress/credentials"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/policies"
)

const rules = `
	{"id": "good", "action": "allow", "hosts": ["good.test"], "ports": [80, 443, 8443], "protocols": ["http", "https"], "tls": "inspect", "methods": ["GET", "POST"], "paths": ["/**"], "foreign_credentials": "allow"},
	{"id": "pass", "action": "allow", "hosts": ["pass.test"]},
	{"id": "never", "action": "deny", "hosts": ["denied.test"]},
	{"id": "clear", "action": "allow", "hosts": ["clear.test"], "ports": [80], "protocols": ["http"], "foreign_credentials": "block"},
	{"id": "raw", "action": "allow", "hosts": ["raw.test"], "ports": [5432], "protocols": ["tcp"]},
	{"id": "private", "action": "allow", "hosts": ["private.test"], "ports": [80, 443], "protocols": ["http", "https"], "tls": "inspect", "foreign_credentials": "allow"},
	{"id": "granted", "action": "allow", "hosts": ["granted.test"], "tls": "inspect"}`

// A way is one of the ways to a destination.
type way struct {
	name string
	dial func(w *world, host string, port uint16) (net.Conn, error)
}

var ways = []way{
	{"transparent", func(w *world, host string, port uint16) (net.Conn, error) {
		return w.bounded(w.wire.Dial(w.t, own.Addr, netip.AddrPortFrom(synthetic(host), port))), nil
	}},
	{"CONNECT", func(w *world, host string, port uint16) (net.Conn, error) {
		return connect(w.tlsTo(w.http), host, port, "Proxy-Authorization: "+w.basic(credentials.HTTP)+"\r\n")
	}},
	{"SOCKS", func(w *world, host string, port uint16) (net.Conn, error) {
		return sock(w.tlsTo(w.socks), host, port, "sbx_attached", w.password(credentials.SOCKS))
	}},
	{"CONNECT by socket", func(w *world, host string, port uint16) (net.Conn, error) { return connect(w.plug(), host, port, "") }},
	{"SOCKS by socket", func(w *world, host string, port uint16) (net.Conn, error) { return sock(w.plug(), host, port, "", "") }},
}

// A try is what a client does with a connection; it returns what it got.
type try func(w *world, nc net.Conn) string

// secure speaks TLS with that server name, and asks in HTTP.
func secure(sni, request string) try {
	return func(w *world, nc net.Conn) string {
		cfg := &tls.Config{RootCAs: w.orgCA, ServerName: sni, InsecureSkipVerify: true}
		conn := tls.Client(nc, cfg)
		if err := conn.Handshake(); err != nil {
			return "no handshake"
		}
		return clear(request)(w, conn)
	}
}

func clear(request string) try {
	return func(_ *world, nc net.Conn) string {
		io.WriteString(nc, request)
		resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil {
			return "no answer"
		}
		body, _ := io.ReadAll(resp.Body)
		return fmt.Sprintf("%d %s", resp.StatusCode, body)
	}
}

func bytesThere(send string) try {
	return func(_ *world, nc net.Conn) string {
		io.WriteString(nc, send)
		got := make([]byte, len(send))
		if _, err := io.ReadFull(nc, got); err != nil {
			return "no answer"
		}
		return string(got)
	}
}

// A matter is a connection, or a request, and what must become of it on each way.
type matter struct {
	host    string
	port    uint16
	do      try
	request string // the same in clear HTTP: it goes in absolute form too
	before  func(*world)

	verdict string
	reason  policies.Reason
	rule    string
	records int    // 1 unless it says otherwise
	got     string // of an allowed one: how the answer begins
}

func get(host, path string, fields ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + strings.Join(fields, "") + "\r\n"
}

var matters = map[string]matter{
	"https, opened":                     {host: "good.test", port: 443, do: secure("good.test", get("good.test", "/a")), verdict: "allow", reason: "allowed", rule: "good", got: "200 GET good.test /a"},
	"https, passed":                     {host: "pass.test", port: 443, do: secure("pass.test", get("pass.test", "/a")), verdict: "allow", reason: "allowed", rule: "pass", got: "200 GET pass.test /a"},
	"https to nowhere that is allowed":  {host: "evil.test", port: 443, do: secure("evil.test", get("evil.test", "/")), verdict: "deny", reason: policies.ReasonNoRule},
	"https where a rule denies":         {host: "denied.test", port: 443, do: secure("denied.test", get("denied.test", "/")), verdict: "deny", reason: policies.ReasonRuleDenied, rule: "never"},
	"https on another port":             {host: "pass.test", port: 8443, do: secure("pass.test", get("pass.test", "/")), verdict: "deny", reason: policies.ReasonNoRule},
	"another server name (B05)":         {host: "pass.test", port: 443, do: secure("evil.test", get("evil.test", "/")), verdict: "deny", reason: policies.ReasonSNIMismatch},
	"no server name (B54)":              {host: "pass.test", port: 443, do: secure("", get("pass.test", "/")), verdict: "deny", reason: policies.ReasonSNIMissing},
	"another Host inside (B01)":         {host: "good.test", port: 443, do: secure("good.test", get("evil.test", "/")), verdict: "deny", reason: policies.ReasonIdentityMismatch},
	"another authority inside (B02)":    {host: "good.test", port: 443, do: secure("good.test", get("evil.test", "https://evil.test/")), verdict: "deny", reason: policies.ReasonIdentityMismatch},
	"another port in Host (B04)":        {host: "good.test", port: 443, do: secure("good.test", get("good.test:8443", "/")), verdict: "deny", reason: policies.ReasonIdentityMismatch},
	"two framings inside (B65)":         {host: "good.test", port: 443, do: secure("good.test", get("good.test", "/", "Content-Length: 1\r\n", "Transfer-Encoding: chunked\r\n")), verdict: "deny", reason: policies.ReasonParse},
	"TRACE inside (B14)":                {host: "good.test", port: 443, do: secure("good.test", "TRACE / HTTP/1.1\r\nHost: good.test\r\n\r\n"), verdict: "deny", reason: policies.ReasonParse},
	"a method that no rule has (B82)":   {host: "good.test", port: 443, do: secure("good.test", "DELETE /a HTTP/1.1\r\nHost: good.test\r\n\r\n"), verdict: "deny", reason: policies.ReasonNoRule},
	"a port of its own (B13)":           {host: "good.test", port: 8443, do: secure("good.test", get("good.test:8443", "/")), verdict: "allow", reason: "allowed", rule: "good", got: "502"},
	"HTTP on a port for TLS (B56)":      {host: "pass.test", port: 443, do: clear(get("pass.test:443", "/")), verdict: "deny", reason: policies.ReasonNotTLS},
	"clear HTTP":                        {host: "clear.test", port: 80, request: get("clear.test", "/a?b=c"), verdict: "allow", reason: "allowed", rule: "clear", got: "200 GET clear.test /a?b=c"},
	"clear HTTP, with a path to settle": {host: "clear.test", port: 80, request: get("clear.test", "/x/../a"), verdict: "allow", reason: "allowed", rule: "clear", got: "200 GET clear.test /a"},
	"clear HTTP to nowhere allowed":     {host: "evil.test", port: 80, request: get("evil.test", "/"), verdict: "deny", reason: policies.ReasonNoRule},
	"clear HTTP where a rule denies":    {host: "denied.test", port: 80, request: get("denied.test", "/"), verdict: "deny", reason: policies.ReasonRuleDenied, rule: "never"},
	"clear HTTP, a method of no rule":   {host: "good.test", port: 80, request: "DELETE /a HTTP/1.1\r\nHost: good.test\r\n\r\n", verdict: "deny", reason: policies.ReasonNoRule},
	"a credential of its own":           {host: "clear.test", port: 80, request: get("clear.test", "/", "Authorization: Bearer x\r\n"), verdict: "deny", reason: policies.ReasonForeign},
	"a body":                            {host: "good.test", port: 80, request: "POST /b HTTP/1.1\r\nHost: good.test\r\nContent-Length: 4\r\n\r\nbody", verdict: "allow", reason: "allowed", rule: "good", got: `200 POST good.test /b auth="" proxy="" body`},
	"a granted host":                    {host: "granted.test", port: 443, do: secure("granted.test", get("granted.test", "/", "Authorization: mine\r\n")), verdict: "allow", reason: "allowed", rule: "granted", got: `200 GET granted.test / auth="ours"`},
	"a name with a private address":     {host: "private.test", port: 80, request: get("private.test", "/"), verdict: "deny", reason: policies.ReasonFloorSoft, records: 2},
	"TCP by name":                       {host: "raw.test", port: 5432, do: bytesThere("hello"), verdict: "allow", reason: "allowed", rule: "raw", got: "hello"},
	"TCP to another port":               {host: "raw.test", port: 5433, do: bytesThere("hello"), verdict: "deny", reason: policies.ReasonNoRule},
	"no fresh policy": {host: "clear.test", port: 80, request: get("clear.test", "/"), verdict: "deny", reason: policies.ReasonStalePolicy,
		before: func(w *world) { w.policies.Fail(proxy.ErrStalePolicy) }},
	"no policy": {host: "pass.test", port: 443, do: secure("pass.test", get("pass.test", "/")), verdict: "deny", reason: policies.ReasonNoPolicy,
		before: func(w *world) { w.policies.Fail(errors.New("none")) }},
}

// absolute is the way of a request that names its destination itself.
func absolute(w *world, request string, by func() (net.Conn, string)) string {
	nc, field := by()
	method, rest, _ := strings.Cut(request, " ")
	_, host, _ := strings.Cut(rest, "Host: ")
	host, _, _ = strings.Cut(host, "\r\n")
	line, after, _ := strings.Cut(rest, "\r\n")
	return clear(method+" http://"+host+line+"\r\n"+field+after)(w, nc)
}

func TestSameVerdictOnEveryWay(t *testing.T) {
	for name, m := range matters {
		do := m.do
		if m.request != "" {
			do = clear(m.request)
		}
		for _, way := range ways {
			t.Run(name+"/"+way.name, func(t *testing.T) {
				m.judged(t, func(w *world) string {
					nc, err := way.dial(w, m.host, m.port)
					if errors.Is(err, errRefused) {
						return "refused"
					}
					if err != nil {
						t.Fatal(err)
					}
					return do(w, nc)
				})
			})
		}
		if m.request == "" {
			continue
		}
		t.Run(name+"/absolute form", func(t *testing.T) {
			m.judged(t, func(w *world) string {
				return absolute(w, m.request, func() (net.Conn, string) {
					return w.tlsTo(w.http), "Proxy-Authorization: " + w.basic(credentials.HTTP) + "\r\n"
				})
			})
		})
		t.Run(name+"/absolute form by socket", func(t *testing.T) {
			m.judged(t, func(w *world) string {
				return absolute(w, m.request, func() (net.Conn, string) { return w.plug(), "" })
			})
		})
	}
}

// judged does it in a world of its own and compares what came of it.
func (m matter) judged(t *testing.T, do func(*world) string) {
	w := newWorld(t, rules)
	if m.before != nil {
		m.before(w)
	}
	got := do(w)
	if m.got != "" && !strings.HasPrefix(got, m.got) || m.verdict == "deny" && strings.HasPrefix(got, "200") {
		t.Errorf("it got %q, want %q", got, m.got)
	}
	list := w.recorder.wait(t, max(m.records, 1))
	d := list[len(list)-1]
	if d.Verdict != m.verdict || d.Reason != m.reason.String() || d.Rule != m.rule {
		t.Errorf("%s, %s, rule %q; want %s, %s, rule %q", d.Verdict, d.Reason, d.Rule, m.verdict, m.reason, m.rule)
	}
	if d.Host != m.host || d.Port != m.port || d.Org != "org_a" || d.Incarnation != 1 || d.Flow == "" {
		t.Errorf("recorded: %+v", d)
	}
	dials := w.dialer.dials()
	want := fmt.Sprintf("%s:%d", m.host, m.port)
	if (m.verdict == "allow" || m.records > 1) != (len(dials) > 0) || len(dials) > 0 && !slices.Equal(slices.Compact(dials), []string{want}) || w.dialer.early {
		t.Errorf("dialled %v (before the record: %v)", dials, w.dialer.early)
	}
}
