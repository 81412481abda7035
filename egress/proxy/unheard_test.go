package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// A malformed request is what a client sends as one request, and what is written down of it.
type malformed struct {
	fields []string
	reason string
	late   bool // it is known for refused once what is open is answered, at the latest
}

func requestFields(path string, more ...string) []string {
	return append([]string{":method", "GET", ":scheme", "https", ":authority", "good.test", ":path", path}, more...)
}

var malformedStreams = map[string]malformed{
	"the twin that is fine":   {fields: requestFields("/a%20z"), reason: "allowed"},
	"one that we refuse":      {fields: []string{":method", "TRACE", ":scheme", "https", ":authority", "good.test", ":path", "/"}, reason: "parse_error"},
	"a broken escape":         {fields: requestFields("/%zz"), reason: "parse_error"},
	"no path":                 {fields: requestFields(""), reason: "parse_error"},
	"two paths":               {fields: requestFields("/a", ":path", "/b"), reason: "parse_error"},
	"a method behind a field": {fields: []string{":scheme", "https", ":authority", "good.test", ":path", "/", "x-a", "b", ":method", "GET"}, reason: "parse_error"},
	"a name in capitals":      {fields: requestFields("/", "X-A", "b"), reason: "parse_error"},
	"a field of connections":  {fields: requestFields("/", "connection", "close"), reason: "parse_error", late: true},
	"a list that is too long": {fields: requestFields("/", "x-a", strings.Repeat("~", 40_000), "x-b", strings.Repeat("~", 40_000)), reason: "parse_error", late: true},
}

// sendStream sends a head in as many frames as it takes.
func sendStream(t *testing.T, framer *http2.Framer, stream uint32, block []byte) {
	t.Helper()
	for from := 0; from < len(block); from += 16 << 10 {
		to := min(from+16<<10, len(block))
		first, last := from == 0, to == len(block)
		err := error(nil)
		if first {
			err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block[from:to], EndHeaders: last, EndStream: true})
		} else {
			err = framer.WriteContinuation(stream, last, block[from:to])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// awaitEnd reads until the stream has ended.
func awaitEnd(t *testing.T, framer *http2.Framer, stream uint32) {
	t.Helper()
	for {
		f, err := framer.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		_, reset := f.(*http2.RSTStreamFrame)
		ended := reset || f.Header().Flags.Has(http2.FlagDataEndStream) && (f.Header().Type == http2.FrameData || f.Header().Type == http2.FrameHeaders)
		if f.Header().StreamID == stream && ended {
			return
		}
	}
}

// What net/http refuses on HTTP/2 before any handler has one line, and what it doesn't has no second.
func TestStreamsWithoutARequestAreRecorded(t *testing.T) {
	for name, c := range malformedStreams {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, allowGood)
			w.upstream("good.test", 443, echo())
			conn, framer := w.h2("good.test")
			for stream := uint32(1); stream <= 3; stream += 2 { // the second shows that the first is recorded once
				sendStream(t, framer, stream, fields(c.fields...))
				awaitEnd(t, framer, stream)
			}
			conn.Close()
			for _, d := range w.decisions(2, true) {
				if d.Reason != c.reason || d.Host != "good.test" || d.Layer != layerHTTP {
					t.Errorf("decision %+v", d)
				}
			}
		})
	}
}

// The same while another stream is open, which has a line of its own and no more.
func TestStreamsBesideAnOpenOneAreRecorded(t *testing.T) {
	for name, c := range malformedStreams {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, allowGood)
			asked, answer := make(chan struct{}), make(chan struct{})
			w.upstream("good.test", 443, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/open" {
					close(asked)
					<-answer
				}
				_, _ = io.WriteString(rw, "ok")
			}))
			conn, framer := w.h2("good.test")
			sendStream(t, framer, 1, fields(requestFields("/open")...))
			<-asked
			for stream := uint32(3); stream <= 5; stream += 2 {
				sendStream(t, framer, stream, fields(c.fields...))
				awaitEnd(t, framer, stream)
			}
			if !c.late {
				w.decisions(3, false)
			}
			close(answer)
			awaitEnd(t, framer, 1)
			list := w.decisions(3, true)
			conn.Close()
			if list[0].Path != "/open" || list[0].Reason != "allowed" {
				t.Errorf("the open one is recorded as %+v", list[0])
			}
			for _, d := range list[1:] {
				if d.Reason != c.reason || d.Host != "good.test" || d.Layer != layerHTTP || d.Verdict != map[bool]string{true: "allow", false: "deny"}[c.reason == "allowed"] {
					t.Errorf("decision %+v", d)
				}
			}
		})
	}
}

// More streams than may be open are refused as that; those that are open go on.
func TestTooManyStreamsAreRecorded(t *testing.T) {
	w := newWorld(t, allowGood, func(c *Config) { c.Limits.Streams = 1 })
	asked, answer := make(chan struct{}), make(chan struct{})
	w.upstream("good.test", 443, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-answer
	}))
	_, framer := w.h2("good.test")
	sendStream(t, framer, 1, fields(requestFields("/open")...))
	<-asked
	sendStream(t, framer, 3, fields(requestFields("/more")...))
	awaitEnd(t, framer, 3)
	list := w.decisions(2, false)
	close(answer)
	awaitEnd(t, framer, 1)
	if d := list[1]; d.Verdict != "deny" || d.Reason != "budget" && d.Reason != "parse_error" {
		t.Errorf("decision %+v", d)
	}
	if list = w.decisions(2, true); list[0].Path != "/open" || list[0].Verdict != "allow" {
		t.Errorf("decision %+v", list[0])
	}
}

// What ends the whole connection is recorded once.
func TestMalformedConnectionIsRecorded(t *testing.T) {
	for name, send := range map[string]func(*http2.Framer) error{
		"fields that can't be read": func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x80}, EndHeaders: true, EndStream: true})
		},
		"a stream of the server's": func(f *http2.Framer) error {
			return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2, BlockFragment: fields(requestFields("/")...), EndHeaders: true, EndStream: true})
		},
		"a body of no stream": func(f *http2.Framer) error { return f.WriteData(1, true, []byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, allowGood)
			w.upstream("good.test", 443, echo())
			conn, framer := w.h2("good.test")
			if err := send(framer); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, conn)
			if d := w.decisions(1, false)[0]; d.Verdict != "deny" || d.Reason != "parse_error" || d.Host != "good.test" {
				t.Errorf("decision %+v", d)
			}
		})
	}
}
