package proxy

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
)

// A method or a path in a header, in the query or behind the body is refused where these were judged, or where a secret would go along; elsewhere it is the server's
// business.
func TestOverridesAreRefused(t *testing.T) {
	inside := func(rule, more string) string { return strings.Replace(rule, `"hosts"`, more+`, "hosts"`, 1) }
	for _, front := range fronts {
		rule := map[string]string{"clear": allowClear, "opened": allowGood}[front.name]
		for _, header := range []string{"X-HTTP-Method-Override: DELETE", "x_http_method_override: DELETE", "X-Original-URL: /admin", "X-Rewrite-Url: /admin", "X-Method-Override:", "X-Harmless: 1", "?_method=DELETE", "?method=DELETE",
			"Transfer-Encoding: chunked\r\nTrailer: X-HTTP-Method-Override\r\n\r\n0\r\nX-HTTP-Method-Override: DELETE"} {
			for name, tt := range map[string]struct {
				rules   string
				granted bool
				refused bool
			}{
				"nothing looks inside":     {rules: rule},
				"a rule for methods":       {rules: inside(rule, `"methods": ["GET"]`), refused: true},
				"a rule for paths":         {rules: inside(rule, `"paths": ["/x/**"]`), refused: true},
				"a deny rule for a method": {rules: rule + fmt.Sprintf(`,{"id": "not", "action": "deny", "hosts": [%q], "methods": ["DELETE"], "tls": "inspect"}`, front.host), refused: true},
				"a granted host":           {rules: rule, granted: true, refused: true},
			} {
				w := newWorld(t, tt.rules, func(c *Config) {
					if tt.granted {
						c.Injector = &injector{host: front.host, value: "Bearer ours"}
					}
				})
				w.upstream(front.host, front.port, echo())
				conn := w.speak(front.host, front.port)
				query, field := "", header+"\r\n"
				if strings.HasPrefix(header, "?") {
					query, field = header, ""
				}
				fmt.Fprintf(conn, "GET /x/y%s HTTP/1.1\r\nHost: %s\r\n%s\r\n", query, front.host, field)
				resp, body := readAnswer(t, bufio.NewReader(conn))
				conn.Close()
				if refused := tt.refused && header != "X-Harmless: 1" && header != "?method=DELETE"; refused != (resp.StatusCode == 403) || refused && !strings.Contains(body, "override_header") {
					t.Errorf("%s, %s, %q: %d %s", front.name, name, header, resp.StatusCode, body)
				} else if refused && len(w.dialer.dials()) > 0 {
					t.Errorf("%s, %s, %q: dialled", front.name, name, header)
				}
			}
		}
	}
}
