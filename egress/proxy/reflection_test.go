package proxy

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"portreeve.dev/policies"
	"portreeve.dev/secrets"
)

const stored = "stored-value-4711"

// scrubberOf is for a secret with that value that is granted to good.test.
func scrubberOf(t testing.TB, choice string) *secrets.Scrubber {
	t.Helper()
	value, err := secrets.NewValue([]byte(stored))
	if err != nil {
		t.Fatal(err)
	}
	i, err := secrets.NewInjector([]secrets.Secret{{ID: "sec_1", Value: value, Grants: []secrets.Grant{{Host: "good.test", Place: "header", Header: "Authorization", Scrub: choice}}}})
	if err != nil {
		t.Fatal(err)
	}
	r, _ := http.NewRequest("GET", "https://good.test/", nil)
	done, err := i.Apply(secrets.Request{Host: "good.test", Port: 443, Path: "/"}, r)
	if err != nil {
		t.Fatal(err)
	}
	return done.Scrub
}

// reflecting is a world with a secret for good.test, whose answers are searched as chosen.
func reflecting(t testing.TB, choice string, h http.Handler) *world {
	in := &injector{host: "good.test", value: "Bearer " + stored, scrub: scrubberOf(t, choice)}
	w := newWorld(t, allowGood, func(c *Config) { c.Injector = in })
	w.upstream("good.test", 443, h)
	return w
}

// mirror answers with the credential that came in, in every place that an answer has. It says what it was asked to send.
func mirror() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := r.Header.Get("Authorization")
		w.Header().Set("X-Echo", got)
		w.Header().Add("Set-Cookie", "a=b")
		w.Header().Add("Set-Cookie", "key="+base64.StdEncoding.EncodeToString([]byte(got)))
		w.Header().Set("X-Asked", fmt.Sprint(r.Header["Accept-Encoding"], r.Header["Range"]))
		w.Header().Set("Trailer", "X-Sum")
		_, _ = io.WriteString(w, "you sent "+got[:len(got)-5])
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, got[len(got)-5:]+".")
		w.Header().Set("X-Sum", "sum of "+got)
		w.Header().Set(http.TrailerPrefix+"X-Late", "late "+got)
	})
}

// What a host answers with of the credential that it was sent doesn't reach the sandbox: in fields and trailers always, in bodies where a
// grant chose it.
func TestReflectedSecretIsReplaced(t *testing.T) {
	hidden := strings.Repeat("x", len(stored))
	for _, h2 := range []bool{false, true} {
		for choice, body := range map[string]string{secrets.ScrubHeaders: "you sent Bearer " + stored + ".", secrets.ScrubBodies: "you sent Bearer " + hidden + "."} {
			t.Run(fmt.Sprint(choice, ", h2 ", h2), func(t *testing.T) {
				w := reflecting(t, choice, mirror())
				r, _ := http.NewRequest("GET", "https://good.test/v1/x", nil)
				r.Header.Set("Accept-Encoding", "gzip")
				r.Header.Set("Range", "bytes=0-9")
				resp, err := w.client(h2, w.orgCA.pool()).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				got, err := io.ReadAll(resp.Body)
				if err != nil || string(got) != body {
					t.Errorf("body %q, %v, want %q", got, err, body)
				}
				if echo := resp.Header.Get("X-Echo"); echo != "Bearer "+hidden {
					t.Errorf("field %q", echo)
				}
				if cookies := resp.Header["Set-Cookie"]; len(cookies) != 2 || cookies[0] != "a=b" || !strings.Contains(cookies[1], "xxxxxxxxxxxxxxxxxxxxx") {
					t.Errorf("cookies %q", cookies)
				}
				if sum, late := resp.Trailer.Get("X-Sum"), resp.Trailer.Get("X-Late"); sum != "sum of Bearer "+hidden || late != "late Bearer "+hidden {
					t.Errorf("trailers %q, %q", sum, late)
				}
				if asked, want := resp.Header.Get("X-Asked"), map[string]string{secrets.ScrubHeaders: "[gzip] [bytes=0-9]", secrets.ScrubBodies: "[identity] []"}[choice]; asked != want {
					t.Errorf("asked for %s, want %s", asked, want)
				}
				if _, end := w.decided(); end.Error != failReflected || end.Status != 200 || end.BytesIn != int64(len(body)) {
					t.Errorf("closed with %+v", end)
				}
			})
		}
	}
}

// The twin: an answer that holds another value goes on as it is, and nothing is said of it.
func TestAnswersWithoutASecretAreWhole(t *testing.T) {
	const other = "Bearer stored-value-4712"
	w := reflecting(t, secrets.ScrubBodies, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Echo", other)
		_, _ = io.WriteString(w, other)
	}))
	resp, body := w.send("/v1/x", "", "X-Other", "")
	if _, end := w.decided(); body != other || resp.Header.Get("X-Echo") != other || resp.ContentLength != int64(len(other)) || end.Error != "" {
		t.Errorf("got %q, %v, closed with %+v", body, resp.Header, end)
	}
}

// An answer that holds a stored value is told of with its request, whether that carried a secret or not, is only counted, or is cut off.
func TestReflectionIsAlwaysTold(t *testing.T) {
	const counting = `{"id": "good", "action": "allow", "hosts": ["good.test"], "tls": "inspect", "log": "count"}`
	for name, c := range map[string]struct {
		rule, answer, path string
		length             string // that the answer says it has
		rows               int
	}{
		"in the end of its own row":      {rule: allowGood, answer: stored, path: "/x", rows: 1},
		"beside a count":                 {rule: counting, answer: stored, path: "/x", rows: 2},
		"beside a count of cut off ones": {rule: counting, answer: stored, path: "/x", length: "99", rows: 2},
		"beside another end":             {rule: allowGood, answer: stored, path: "/x", length: "99", rows: 2},
		"the twin that holds another":    {rule: counting, answer: "stored-value-4712", path: "/x", rows: 1},
		"the twin that is cut off":       {rule: allowGood, answer: "stored-value-4712", path: "/x", length: "99", rows: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, c.rule, func(cfg *Config) {
				cfg.Injector = &injector{host: "good.test", scrub: scrubberOf(t, secrets.ScrubBodies)}
			})
			w.upstream("good.test", 443, http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
				if c.length != "" {
					rw.Header().Set("Content-Length", c.length)
				}
				_, _ = io.WriteString(rw, c.answer)
			}))
			r, _ := http.NewRequest("GET", "https://good.test"+c.path, nil)
			resp, err := w.client(false, w.orgCA.pool()).Do(r)
			if err != nil && c.length == "" { // a short one that is cut off may not even begin
				t.Fatal(err)
			}
			if err == nil {
				got, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if strings.Contains(string(got), stored) {
					t.Errorf("the sandbox got %q", got)
				}
			}
			first := w.decisions(c.rows, false)[0]
			end := w.ended(first.ID)
			list := w.decisions(c.rows, false) // before its end comes whatever stands beside it
			if first.Verdict != "allow" || len(first.Secrets) != 0 || first.Fold != (c.rule == counting) {
				t.Errorf("the request is recorded as %+v", first)
			}
			if told := end.Error == failReflected; told != (c.rows == 1 && c.answer == stored) || (end.Error == failReset) != (c.length != "") {
				t.Errorf("it ended as %+v", end)
			}
			if c.rows == 1 {
				return
			}
			if d := list[1]; d.Fold || d.Count != 0 || !d.Closed || d.Until.IsZero() || d.Error != failReflected || d.Status != 200 || d.Path != c.path || d.Flow != first.Flow || d.ID == first.ID {
				t.Errorf("beside it stands %+v", d)
			}
		})
	}
}

// An answer that can't be searched, where it has to be, doesn't pass.
func TestUnreadableAnswersAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		status   int
		field    string
		value    string
		readable bool
	}{
		"as it is":               {status: 200, field: "X-Other", value: "gzip", readable: true},
		"in no encoding":         {status: 200, field: "Content-Encoding", value: "identity", readable: true},
		"compressed":             {status: 200, field: "Content-Encoding", value: "gzip"},
		"compressed by gRPC":     {status: 200, field: "Grpc-Encoding", value: "gzip"},
		"a part":                 {status: 206, field: "Content-Range", value: "bytes 0-9/20"},
		"a difference":           {status: 226, field: "IM", value: "vcdiff"},
		"nothing, so not looked": {status: 304, field: "Content-Encoding", value: "gzip", readable: true},
	} {
		for _, choice := range []string{secrets.ScrubBodies, secrets.ScrubHeaders} {
			w := reflecting(t, choice, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(c.field, c.value)
				w.WriteHeader(c.status)
			}))
			resp, body := w.send("/v1/x", "", "X-Other", "")
			if c.readable || choice == secrets.ScrubHeaders {
				if _, end := w.decided(); resp.StatusCode != c.status || end.Error != "" {
					t.Errorf("%s, %s: %d, closed with %+v", name, choice, resp.StatusCode, end)
				}
				continue
			}
			denied := w.decisions(2, true)[1]
			if resp.StatusCode != 502 || !strings.Contains(body, failUnreadable) || !strings.Contains(body, denied.ID) {
				t.Errorf("%s, %s: %d %s", name, choice, resp.StatusCode, body)
			}
			if denied.Verdict != "deny" || denied.Reason != policies.ReasonSecretUnavailable.String() || !strings.Contains(denied.Guidance, "searched") {
				t.Errorf("%s, %s: recorded as %+v", name, choice, denied)
			}
		}
	}
}

// A WebSocket's messages are the answer's body, and come uncompressed where they are searched.
func TestReflectionByWebSocket(t *testing.T) {
	for choice, want := range map[string]string{secrets.ScrubBodies: "got xxxxxxxxxxxxxxxxx!", secrets.ScrubHeaders: "got " + stored + "!"} {
		w := reflecting(t, choice, chat())
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		c, resp, err := websocket.Dial(ctx, "wss://good.test/v1/x", &websocket.DialOptions{HTTPClient: w.client(false, w.orgCA.pool()), CompressionMode: websocket.CompressionContextTakeover})
		if err != nil {
			t.Fatal(err, resp)
		}
		if err := c.Write(ctx, websocket.MessageText, []byte(stored+"!")); err != nil {
			t.Fatal(err)
		}
		if _, b, err := c.Read(ctx); err != nil || string(b) != want {
			t.Errorf("%s: got %q, %v", choice, b, err)
		}
		if err := c.Close(websocket.StatusNormalClosure, ""); err != nil {
			t.Error(err)
		}
		cancel()
		if _, end := w.decided(); (end.Error == failReflected) != (choice == secrets.ScrubBodies) {
			t.Errorf("%s: closed with %+v", choice, end)
		}
	}
}
