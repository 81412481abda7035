package e2e

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"portreeve.dev/lab"
)

// pause puts the sandbox to sleep.
func (b *box) pause() {
	b.t.Helper()
	call(b.t, b.p, "POST", "/sandbox/"+b.ID+"/pause", nil, 200, nil)
}

// running waits until the store knows that the sandbox was woken, which it is told after the caller was answered.
func (b *box) running() view {
	b.t.Helper()
	if err := lab.Await(5*time.Second, "store that knows of the wake", func() bool { return b.view().Status == "running" }); err != nil {
		b.t.Error(err)
	}
	return b.view()
}

// TestCallWakesThePaused fifty times. How long it took is printed, not judged: other work may be on the machine.
func TestCallWakesThePaused(t *testing.T) {
	l, p := shared(t)
	b := sandbox(t, p)
	b.serving("127.0.0.1:8000")
	tun := b.tunnel(l, 8000)
	first := b.view()
	var took, held []time.Duration
	for i := range 50 {
		b.pause()
		began := time.Now()
		a, err := tun.get("/")
		took = append(took, time.Since(began))
		if err != nil || a.Status != 200 || a.App.N != int64(i+1) {
			t.Fatalf("call %d: %v %v", i+1, a, err)
		}
		if ms, err := strconv.Atoi(a.Header.Get("X-Portreeve-Wake-Ms")); err == nil {
			held = append(held, time.Duration(ms)*time.Millisecond)
		}
	}
	if now := b.running(); now.Incarnation != first.Incarnation || now.Generation != first.Generation+50 {
		t.Errorf("after 50 wakes it is in generation %d of incarnation %d, it was in %d of %d", now.Generation, now.Incarnation, first.Generation, first.Incarnation)
	}
	if len(held) != 50 {
		t.Errorf("%d of 50 answers say how long they were held", len(held))
	}
	slices.Sort(took)
	slices.Sort(held)
	t.Logf("a call that wakes, from dial to the last byte: median %v, 45th of 50 %v, longest %v, shortest %v", took[25], took[44], took[49], took[0])
	t.Logf("held for the wake: median %v, longest %v", held[len(held)/2], held[len(held)-1])
}

// TestManyCallersAreOneResume: two hundred at the same time, each with an answer.
func TestManyCallersAreOneResume(t *testing.T) {
	l, p := shared(t)
	b := sandbox(t, p)
	b.serving("127.0.0.1:8000")
	tun := b.tunnel(l, 8000)
	before := b.view()
	b.pause()
	const callers = 200
	body := strings.Repeat("x", 1000)
	var wg sync.WaitGroup
	begin := make(chan struct{})
	failed := make(chan string, callers)
	for range callers {
		wg.Go(func() {
			c := client(l, p, false)
			<-begin
			a, err := ask(c, "POST", tun.HTTPURL+"/", body, "X-Portreeve-Token", tun.Token)
			switch {
			case err != nil:
				failed <- err.Error()
			case a.Status != 200 || a.App.Body != body:
				failed <- a.String()
			}
		})
	}
	began := time.Now()
	close(begin)
	wg.Wait()
	t.Logf("%d callers were answered in %v", callers, time.Since(began).Round(time.Millisecond))
	close(failed)
	n := 0
	for why := range failed {
		if n++; n <= 3 {
			t.Errorf("a caller: %s", why)
		}
	}
	if n > 0 {
		t.Errorf("%d of %d had no answer", n, callers)
	}
	if now := b.running(); now.Generation != before.Generation+1 {
		t.Errorf("it is in generation %d, it was in %d", now.Generation, before.Generation)
	}
}

// TestSomeCallersDoNotWake: those without the token, and those who only look around. The last one may.
func TestSomeCallersDoNotWake(t *testing.T) {
	l, p := shared(t)
	b := sandbox(t, p)
	b.serving("127.0.0.1:8000")
	tun := b.tunnel(l, 8000)
	b.pause()
	before := b.view()
	c := client(l, p, false)
	for name, q := range map[string]struct {
		method, path string
		header       []string
		status       int
		code         string
	}{
		"no token":            {"GET", "/", nil, 401, "token_required"},
		"a wrong token":       {"GET", "/", []string{"X-Portreeve-Token", "wrong"}, 401, "token_required"},
		"a browser, no token": {"GET", "/", []string{"Accept", "text/html"}, 401, "token_required"},
		"a preflight":         {"OPTIONS", "/", []string{"Origin", "https://a.test", "Access-Control-Request-Method", "POST"}, 204, ""},
		"an icon":             {"GET", "/favicon.ico", []string{"X-Portreeve-Token", tun.Token}, 503, "asleep"},
		"a prefetch":          {"GET", "/", []string{"X-Portreeve-Token", tun.Token, "Sec-Purpose", "prefetch"}, 503, "asleep"},
	} {
		a, err := ask(c, q.method, tun.URL+q.path, "", q.header...)
		if err != nil || a.Status != q.status || a.code() != q.code {
			t.Errorf("%s: %v %v, want %d %s", name, a, err, q.status, q.code)
		}
		if now := b.view(); now != before || now.Status != "paused" {
			t.Fatalf("%s: the sandbox is %+v, it was %+v", name, now, before)
		}
	}
	if r := p.CLI("sandbox", "inspect", b.ID); !strings.Contains(r.Stdout, "paused") {
		t.Errorf("inspect says %v", r)
	}
	tun.says("with the token", 200, "")
}

// TestBrowserSeesAPageWhileItWakes: an address bar gets something to look at at once, and what was asked for when it asks again.
func TestBrowserSeesAPageWhileItWakes(t *testing.T) {
	l, p := shared(t)
	b := sandbox(t, p)
	b.serving("127.0.0.1:8000")
	tun := b.tunnel(l, 8000)
	b.pause()
	browser := []string{"Accept", "text/html,*/*", "Sec-Fetch-Mode", "navigate"}
	a, err := tun.get("/page", browser...)
	if err != nil || a.Status != 503 || a.code() != "waking" || !strings.Contains(a.Body, `http-equiv="refresh"`) || a.Header.Get("Cache-Control") != "no-store" ||
		!strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") || a.Header.Get("Retry-After") == "" {
		t.Errorf("the first look: %v %v %v", a, err, a.Header)
	}
	if err := lab.Await(10*time.Second, "page of the app's", func() bool {
		a, err := tun.get("/page", browser...)
		return err == nil && a.Status == 200 && a.App.URI == "/page"
	}); err != nil {
		t.Error(err)
	}
	if a, err := tun.get("/page", browser...); err != nil || a.Header.Get("X-Portreeve-Wake-Ms") != "" {
		t.Errorf("once it runs: %v %v %v", a, err, a.Header)
	}
}

// TestPauseEndsStreams: an open WebSocket is told why, and the next one wakes the sandbox before it is accepted.
func TestPauseEndsStreams(t *testing.T) {
	l, p := shared(t)
	b := sandbox(t, p)
	b.serving("127.0.0.1:8000")
	tun := b.tunnel(l, 8000)
	conn := tun.webSocket(tun.URL)
	b.pause()
	if why := closed(conn, 10*time.Second); why.Code != websocket.StatusServiceRestart || why.Reason != "sandbox paused" {
		t.Errorf("it ended with %d %q", why.Code, why.Reason)
	}
	tun.webSocket(tun.HTTPURL)
	b.running()
}
