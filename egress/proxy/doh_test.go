package proxy

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// B44: a DNS question in HTTP is refused on whatever host, unless other resolvers are open.
func TestQuestionsToOtherResolversAreRefused(t *testing.T) {
	q := new(dns.Msg)
	q.SetQuestion("www.example.com.", dns.TypeA)
	wire, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	get := base64.RawURLEncoding.EncodeToString(wire)
	body := fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(wire), wire)
	for _, front := range fronts {
		rule := map[string]string{"clear": allowClear, "opened": allowGood}[front.name]
		for name, tt := range map[string]struct {
			send    string
			refused bool
		}{
			"a message":                      {"POST /dns-query HTTP/1.1\r\nHost: NAME\r\nContent-Type: application/dns-message\r\n" + body, true},
			"in capitals, with a parameter":  {"POST /x HTTP/1.1\r\nHost: NAME\r\nContent-Type: Application/DNS-Message; a=b\r\n" + body, true},
			"of no type":                     {"POST /dns-query HTTP/1.1\r\nHost: NAME\r\n" + body, true},
			"oblivious":                      {"POST /x HTTP/1.1\r\nHost: NAME\r\nContent-Type: application/oblivious-dns-message\r\n" + body, true},
			"in the query":                   {"GET /dns-query?dns=" + get + " HTTP/1.1\r\nHost: NAME\r\n\r\n", true},
			"in the query, escaped":          {"GET /x?a=b&d%6Es=" + strings.Replace(get, "A", "%41", 1) + " HTTP/1.1\r\nHost: NAME\r\n\r\n", true},
			"asking for JSON":                {"GET /resolve?name=a.test HTTP/1.1\r\nHost: NAME\r\nAccept: text/html, application/dns-json\r\n\r\n", true},
			"an application's own dns":       {"GET /settings?dns=1.1.1.1 HTTP/1.1\r\nHost: NAME\r\n\r\n", false},
			"an application's own dns, long": {"GET /settings?dns=" + strings.Repeat("a", 40) + " HTTP/1.1\r\nHost: NAME\r\n\r\n", false},
			"JSON":                           {"POST /x HTTP/1.1\r\nHost: NAME\r\nAccept: */*\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", false},
		} {
			for _, open := range []bool{false, true} {
				w := newWorld(t, rule)
				if open {
					w.policies.SetDocument(t, `{"rules": [`+rule+`], "doh": "allow"}`)
				}
				w.upstream(front.host, front.port, echo())
				conn := w.speak(front.host, front.port)
				_, _ = fmt.Fprint(conn, strings.ReplaceAll(tt.send, "NAME", front.host))
				resp, got := readAnswer(t, bufio.NewReader(conn))
				conn.Close()
				if refused := tt.refused && !open; refused != (resp.StatusCode == 403) || refused && !strings.Contains(got, "dns_over_https") {
					t.Errorf("%s, %s, open %v: %d %s", front.name, name, open, resp.StatusCode, got)
				} else if refused && len(w.dialer.dials()) > 0 {
					t.Errorf("%s, %s: dialled", front.name, name)
				}
			}
		}
	}
}
