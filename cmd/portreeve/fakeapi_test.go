package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/coder/websocket"
)

const testKey = "prk_canary_in_no_output"

// A fakeAPI is an HTTP server that says what a script told it to, and remembers what it was asked.
type fakeAPI struct {
	server *httptest.Server

	mu      sync.Mutex
	replies map[string]reply // by "METHOD PATH"
	calls   []fakeCall
}

// A reply is one answer; its kind is the ending of the file that it was read from.
type reply struct {
	status int
	body   string
	kind   string
}

// A fakeCall is one that was made: what it asked, and the query, a line, and the body.
type fakeCall struct{ what, said string }

func newFakeAPI() *fakeAPI {
	f := &fakeAPI{replies: map[string]reply{}}
	f.server = httptest.NewServer(f)
	return f
}

func (f *fakeAPI) url() string { return f.server.URL + "/api/v1" }

func (f *fakeAPI) close() {
	f.server.CloseClientConnections()
	f.server.Close()
}

func (f *fakeAPI) answer(what string, r reply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.replies[what] = r
}

func (f *fakeAPI) note(what, said string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fakeCall{what, said})
}

// take forgets the first call that was what is wanted. It also lists all that there were.
func (f *fakeAPI) take(what string, said *regexp.Regexp) (found bool, all string) {
	all = f.left()
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.calls, func(c fakeCall) bool { return c.what == what && said.MatchString(c.said) })
	if i >= 0 {
		f.calls = slices.Delete(f.calls, i, i+1)
	}
	return i >= 0, all
}

func (f *fakeAPI) left() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all strings.Builder
	for _, c := range f.calls {
		fmt.Fprintf(&all, "%s %s\n", c.what, c.said)
	}
	return all.String()
}

func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/api/v1")
	body, _ := io.ReadAll(r.Body)
	f.note(what, r.URL.RawQuery+"\n"+string(body))
	f.mu.Lock()
	a, ok := f.replies[what]
	f.mu.Unlock()
	switch {
	case r.Header.Get("Last-Event-ID") != "": // whoever comes back to a stream is sent away, and so ends
		f.note(what+" after", r.Header.Get("Last-Event-ID"))
		f.say(w, reply{status: http.StatusUnauthorized, body: `{"code":"unauthorized","title":"gone"}`})
	case r.Header.Get("Authorization") != "ApiKey "+testKey:
		http.Error(w, "the key is missing", http.StatusUnauthorized)
	case !ok:
		http.Error(w, "the script has no answer to "+what, http.StatusInternalServerError)
	case a.kind == ".ws":
		f.terminal(w, r, what, a.body)
	default:
		f.say(w, a)
	}
}

func (f *fakeAPI) say(w http.ResponseWriter, a reply) {
	kind := "application/json"
	switch {
	case a.kind == ".sse":
		kind = "text/event-stream"
	case a.status >= 400:
		kind = "application/problem+json"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(a.status)
	io.WriteString(w, a.body)
}

// terminal speaks the other side of a shell: a line "screen TEXT" is printed, "control JSON" is sent as it stands, and
// "typed" waits for input, which is noted as a call of its own.
func (f *fakeAPI) terminal(w http.ResponseWriter, r *http.Request, what, script string) {
	conn, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer conn.CloseNow()
	for line := range strings.Lines(script) {
		word, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch word {
		case "screen":
			err = conn.Write(r.Context(), websocket.MessageBinary, []byte(text+"\n"))
		case "control":
			err = conn.Write(r.Context(), websocket.MessageText, []byte(text))
		case "typed":
			var data []byte
			_, data, err = conn.Read(r.Context())
			f.note(what, "\n"+string(data))
		}
		if err != nil {
			return
		}
	}
	conn.Close(websocket.StatusNormalClosure, "")
}
