package ingress

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"portreeve.dev/ingress/route"
)

// TestPauseInTheMiddleOfARequest: what may be asked twice is asked again once the sandbox is awake, and what may not is
// answered so. A request that was not sent yet is sent, whatever it is.
func TestPauseInTheMiddleOfARequest(t *testing.T) {
	for _, c := range []struct {
		method   string
		sent     bool // to the app, when the sandbox pauses
		status   int
		code     string
		requests int64
	}{
		{"GET", true, 200, "", 2},
		{"POST", true, 503, "sandbox_restarted", 1},
		{"GET", false, 200, "", 1},
		{"POST", false, 200, "", 1},
	} {
		t.Run(fmt.Sprintf("%s, sent: %v", c.method, c.sent), func(t *testing.T) {
			w := newWorld(t)
			pause := func() { w.sleep("sbx_a", w.a(paused)) }
			var requests atomic.Int64
			w.app("sbx_a", func(rw http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if requests.Add(1) == 1 && c.sent {
					pause()
					<-r.Context().Done()
				}
			})
			if !c.sent {
				once := sync.OnceFunc(pause)
				w.boxes.set(func() { w.boxes.onDial = func(*route.Record) { once() } })
			}
			a := w.send(w.client(false), c.method, "https://"+hostA(w.https)+"/", strings.NewReader(map[string]string{"POST": "body"}[c.method]), "X-Portreeve-Token", token)
			a.want(t, c.status, c.code)
			if n := requests.Load(); n != c.requests {
				t.Errorf("the app was asked %d times, want %d", n, c.requests)
			}
		})
	}
}
