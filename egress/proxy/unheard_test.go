package proxy

import (
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// What net/http refuses on HTTP/2 before any handler has one line, and what it doesn't has no second.
func TestStreamsWithoutARequestAreRecorded(t *testing.T) {
	get := func(path string, more ...string) []string {
		return append([]string{":method", "GET", ":scheme", "https", ":authority", "good.test", ":path", path}, more...)
	}
	for name, c := range map[string]struct {
		fields []string
		reason string
	}{
		"the twin that is fine":   {get("/a%20z"), "allowed"},
		"one that we refuse":      {[]string{":method", "TRACE", ":scheme", "https", ":authority", "good.test", ":path", "/"}, "parse_error"},
		"a broken escape":         {get("/%zz"), "parse_error"},
		"no path":                 {get(""), "parse_error"},
		"a field of connections":  {get("/", "connection", "close"), "parse_error"},
		"a list that is too long": {get("/", "x-a", strings.Repeat("~", 40_000), "x-b", strings.Repeat("~", 40_000)), "parse_error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, allowGood)
			w.upstream("good.test", 443, echo())
			conn, framer := w.h2("good.test")
			block := fields(c.fields...)
			for stream := uint32(1); stream <= 3; stream += 2 { // the second shows that the first is recorded once
				write := func(part []byte, first, last bool) error {
					if first {
						return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: part, EndHeaders: last, EndStream: true})
					}
					return framer.WriteContinuation(stream, last, part)
				}
				for from := 0; from < len(block); from += 16 << 10 {
					to := min(from+16<<10, len(block))
					if err := write(block[from:to], from == 0, to == len(block)); err != nil {
						t.Fatal(err)
					}
				}
				for ended := false; !ended; {
					f, err := framer.ReadFrame()
					if err != nil {
						t.Fatal(err)
					}
					_, reset := f.(*http2.RSTStreamFrame)
					ended = f.Header().StreamID == stream && (reset || f.Header().Flags.Has(http2.FlagDataEndStream) && f.Header().Type != http2.FrameWindowUpdate)
				}
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
