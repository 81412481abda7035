package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	ws "github.com/coder/websocket"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// ask opens a connection, says its requests one after another, and tells the statuses.
func (t *talk) ask(a *ask) said {
	host, _, err := net.SplitHostPort(a.To)
	if err != nil {
		return bad("%v", err)
	}
	if a.Absolute && t.path == "explicit" {
		return t.absolute(a, host)
	}
	c, err := t.dial(a.To, t.path)
	if err != nil {
		return bad("%s", word(err))
	}
	t.use(c)
	h2 := t.path == "h2" && !a.Clear
	if !a.Clear {
		s := &tlsStep{SNI: a.SNI, ALPN: []string{"http/1.1"}}
		if s.SNI == "" {
			s.SNI = host
		}
		if h2 {
			s.ALPN = []string{"h2"}
		}
		if what := t.secure(s); !what.OK {
			return what
		}
	}
	requests := append([]request{a.request}, a.More...)
	for i := range requests {
		requests[i].defaults(host)
	}
	if h2 {
		return t.askH2(requests)
	}
	var all []said
	for _, q := range requests {
		if _, err := t.conn.Write(q.bytes(q.Target)); err != nil {
			all = append(all, bad("%s", word(err)))
			break
		}
		what := answer(t.r, q.Method)
		if all = append(all, what); !what.OK {
			break
		}
	}
	return join(all)
}

// askAgain asks as often on connections of their own, and counts what it came to.
func (t *talk) askAgain(a *ask) said {
	count := map[string]int{}
	for range a.Again {
		one := &talk{job: t.job, path: t.path, limit: t.limit}
		count[one.ask(a).Outcome]++
		one.close()
	}
	return ok("%s", counted(count))
}

// absolute says the requests to the explicit proxy itself.
func (t *talk) absolute(a *ask, host string) said {
	c, err := t.job.HTTP.open(t)
	if err != nil {
		return bad("%s", word(err))
	}
	t.use(c)
	var all []said
	for _, q := range append([]request{a.request}, a.More...) {
		q.defaults(host)
		q.Headers = append(q.Headers, [2]string{"Proxy-Authorization", "Basic " + t.job.HTTP.basic()})
		to := a.To
		if strings.HasSuffix(to, ":80") {
			to = host
		}
		if strings.HasPrefix(q.Target, "/") {
			q.Target = "http://" + to + q.Target
		}
		if _, err := c.Write(q.bytes(q.Target)); err != nil {
			all = append(all, bad("%s", word(err)))
			break
		}
		all = append(all, answer(t.r, q.Method))
	}
	return join(all)
}

func (q *request) defaults(host string) {
	if q.Method == "" {
		q.Method = "GET"
	}
	if q.Target == "" {
		q.Target = "/"
	}
	if q.Host == "" {
		q.Host = host
	}
}

func (q *request) bytes(target string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", q.Method, target, q.Host)
	for _, h := range q.Headers {
		fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
	}
	if q.Body != "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(q.Body))
	}
	fmt.Fprintf(&b, "\r\n%s", q.Body)
	return b.Bytes()
}

// join tells all answers as one.
func join(all []said) said {
	s := said{OK: true}
	var words []string
	for _, one := range all {
		words = append(words, one.Outcome)
		s.OK = s.OK && one.OK
		s.Body, s.Head = one.Body, one.Head
	}
	s.Outcome = strings.Join(words, " ")
	return s
}

// A session writes frames of HTTP/2 itself, as no library would send what is asked here.
type session struct {
	c net.Conn
	f *http2.Framer
	// writing is held by whoever writes a frame: a framer is for one at a time, and what is read is answered while others write.
	writing sync.Mutex
}

func (s *session) write(frame func() error) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return frame()
}

func (t *talk) session() (*session, error) {
	if _, err := io.WriteString(t.conn, http2.ClientPreface); err != nil {
		return nil, err
	}
	f := http2.NewFramer(t.conn, bufio.NewReader(t.conn))
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.AllowIllegalWrites = true
	return &session{c: t.conn, f: f}, f.WriteSettings()
}

func (t *talk) askH2(requests []request) said {
	s, err := t.session()
	if err != nil {
		return bad("%s", word(err))
	}
	var all []said
	for i, q := range requests {
		fields := append([][2]string{{":method", q.Method}, {":scheme", "https"}, {":authority", q.Host}, {":path", q.Target}}, q.Headers...)
		id := uint32(2*i + 1)
		err := s.f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block(fields), EndHeaders: true, EndStream: q.Body == ""})
		if err == nil && q.Body != "" {
			err = s.f.WriteData(id, true, []byte(q.Body))
		}
		if err != nil {
			all = append(all, bad("%s", word(err)))
			break
		}
		what := s.stream(id)
		if all = append(all, what); !what.OK && !strings.HasPrefix(what.Outcome, "stream") {
			break
		}
	}
	return join(all)
}

func block(fields [][2]string) []byte {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	for _, h := range fields {
		enc.WriteField(hpack.HeaderField{Name: strings.ToLower(h[0]), Value: h[1]})
	}
	return b.Bytes()
}

// stream reads until a stream has ended.
func (s *session) stream(id uint32) said {
	what := said{OK: true}
	for {
		frame, err := s.f.ReadFrame()
		if err != nil {
			what.OK, what.Outcome = false, strings.TrimSpace(what.Outcome+" "+word(err))
			return what
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				s.write(s.f.WriteSettingsAck)
			}
		case *http2.GoAwayFrame:
			if frame.LastStreamID < id || frame.ErrCode != http2.ErrCodeNo {
				return bad("goaway %v", frame.ErrCode)
			}
		case *http2.MetaHeadersFrame:
			if frame.StreamID != id {
				break
			}
			if status := frame.PseudoValue("status"); status != "" {
				what.Outcome = status
			}
			for _, h := range frame.Fields {
				what.Head += h.Name + ": " + h.Value + "\r\n"
			}
		case *http2.DataFrame:
			if frame.StreamID == id {
				what.Body = cut(what.Body + string(frame.Data()))
				if n := uint32(len(frame.Data())); n > 0 {
					s.write(func() error { return errors.Join(s.f.WriteWindowUpdate(0, n), s.f.WriteWindowUpdate(id, n)) })
				}
			}
		case *http2.RSTStreamFrame:
			if frame.StreamID == id {
				return bad("stream %v", frame.ErrCode)
			}
		}
		if h := frame.Header(); h.StreamID == id && h.Flags.Has(http2.FlagDataEndStream) && (h.Type == http2.FrameData || h.Type == http2.FrameHeaders) {
			return what
		}
	}
}

// frames says the preface and the frames, and tells how stream 1 ends.
func (t *talk) frames(all []frame) said {
	s, err := t.session()
	if err != nil {
		return bad("%s", word(err))
	}
	done := make(chan said, 1)
	go func() { done <- s.stream(1) }()
	for _, f := range all {
		payload, err := unhex(f.Hex)
		if err != nil {
			return bad("%v", err)
		}
		payload = append(payload, block(f.Fields)...)
		for range max(1, f.Times) {
			if err := s.write(func() error {
				return s.f.WriteRawFrame(http2.FrameType(f.Type), http2.Flags(f.Flags), f.Stream, payload)
			}); err != nil {
				break // what the other side said about it is what counts
			}
		}
	}
	return <-done
}

// socket sends a message over a WebSocket, and a second one after a stay.
func (t *talk) socket(w *websocket) said {
	ctx, cancel := context.WithTimeout(context.Background(), t.limit+time.Duration(w.Stay)*time.Millisecond)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{
		DialContext:     func(_ context.Context, _, to string) (net.Conn, error) { return t.dial(to, t.path) },
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}}
	c, resp, err := ws.Dial(ctx, w.URL, &ws.DialOptions{HTTPClient: client})
	if err != nil {
		if resp != nil {
			return bad("%d", resp.StatusCode)
		}
		return bad("%s", word(err))
	}
	defer c.CloseNow()
	for i := range 2 {
		if i == 1 && w.Stay == 0 {
			break
		}
		if i == 1 {
			time.Sleep(time.Duration(w.Stay) * time.Millisecond)
		}
		if err := c.Write(ctx, ws.MessageText, []byte(w.Send)); err != nil {
			return bad("%s", word(err))
		}
		if _, data, err := c.Read(ctx); err != nil || string(data) != w.Send {
			return bad("%q %v", data, err)
		}
	}
	return ok("echo")
}
