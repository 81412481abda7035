package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A script is what is said on one TLS connection. The certificate must be one that the machine's authorities vouch for.
type script struct {
	To       string     `json:"to"`  // NAME:PORT
	SNI      string     `json:"sni"` // default the name
	H2       bool       `json:"h2"`
	Requests []question `json:"requests"`
}

// A question is one request. On HTTP/2 Host is the :authority.
type question struct {
	Method string      `json:"method"`
	Target string      `json:"target"`
	Host   string      `json:"host"`
	Header [][2]string `json:"header"`
	Body   string      `json:"body"`
}

// A reply is the answer to it; of status 0 if there was none.
type reply struct {
	Status int    `json:"status"`
	Type   string `json:"type"`
	Body   string `json:"body"`
}

func opened(text string) (string, error) {
	var s script
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return "", err
	}
	c, err := dial("tcp", s.To)
	if err != nil {
		return "", err
	}
	defer c.Close()
	config := &tls.Config{ServerName: s.SNI, NextProtos: []string{"http/1.1"}}
	if s.H2 {
		config.NextProtos = []string{"h2"}
	}
	if config.ServerName == "" {
		config.ServerName, _, _ = net.SplitHostPort(s.To)
	}
	t := tls.Client(c, config)
	if err := t.Handshake(); err != nil {
		return "", err
	}
	if got := t.ConnectionState().NegotiatedProtocol; got != config.NextProtos[0] {
		return "", fmt.Errorf("the server speaks %q", got)
	}
	answers := make([]reply, len(s.Requests))
	if s.H2 {
		err = overHTTP2(t, s.Requests, answers)
	} else {
		overHTTP1(t, s.Requests, answers)
	}
	data, _ := json.Marshal(answers)
	return string(data), err
}

func overHTTP1(c net.Conn, requests []question, answers []reply) {
	r := bufio.NewReader(c)
	for i, q := range requests {
		var b bytes.Buffer
		fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\n", q.Method, q.Target, q.Host)
		for _, h := range q.Header {
			fmt.Fprintf(&b, "%s: %s\r\n", h[0], h[1])
		}
		if q.Body != "" {
			fmt.Fprintf(&b, "Content-Length: %d\r\n", len(q.Body))
		}
		fmt.Fprintf(&b, "\r\n%s", q.Body)
		if _, err := c.Write(b.Bytes()); err != nil {
			return
		}
		resp, err := http.ReadResponse(r, &http.Request{Method: q.Method})
		if err != nil {
			return
		}
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		resp.Body.Close()
		answers[i] = reply{resp.StatusCode, resp.Header.Get("Content-Type"), string(body)}
	}
}

// overHTTP2 writes the frames itself, as no library would send what is asked here.
func overHTTP2(c net.Conn, requests []question, answers []reply) error {
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		return err
	}
	f := http2.NewFramer(c, bufio.NewReader(c))
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := f.WriteSettings(); err != nil {
		return err
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for i, q := range requests {
		block.Reset()
		fields := append([][2]string{{":method", q.Method}, {":scheme", "https"}, {":authority", q.Host}, {":path", q.Target}}, q.Header...)
		for _, h := range fields {
			if err := enc.WriteField(hpack.HeaderField{Name: strings.ToLower(h[0]), Value: h[1]}); err != nil {
				return err
			}
		}
		id := uint32(2*i + 1)
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: q.Body == ""}); err != nil {
			return err
		}
		if q.Body != "" {
			if err := f.WriteData(id, true, []byte(q.Body)); err != nil {
				return err
			}
		}
		if err := readStream(f, id, &answers[i]); err != nil {
			return nil // the rest has no answer
		}
	}
	return nil
}

// readStream reads until the stream has ended, by a reset too.
func readStream(f *http2.Framer, id uint32, into *reply) error {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.WriteSettingsAck()
			}
		case *http2.GoAwayFrame:
			if frame.LastStreamID < id {
				return io.EOF
			}
		case *http2.MetaHeadersFrame:
			if frame.StreamID == id {
				fmt.Sscan(frame.PseudoValue("status"), &into.Status)
				if i := slices.IndexFunc(frame.Fields, func(h hpack.HeaderField) bool { return h.Name == "content-type" }); i >= 0 {
					into.Type = frame.Fields[i].Value
				}
			}
		case *http2.DataFrame:
			if frame.StreamID == id {
				into.Body += string(frame.Data())
			}
		case *http2.RSTStreamFrame:
			if frame.StreamID == id {
				return nil
			}
		}
		if h := frame.Header(); h.StreamID == id && h.Flags.Has(http2.FlagDataEndStream) && (h.Type == http2.FrameData || h.Type == http2.FrameHeaders) {
			return nil
		}
	}
}

// messages opens a WebSocket, sends a message and prints what comes back.
func messages(url string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return "", err
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, []byte("hello")); err != nil {
		return "", err
	}
	_, data, err := conn.Read(ctx)
	return string(data), err
}

// events reads a stream of events to its end and prints them with the milliseconds after the first.
func events(url string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var seen []string
	var first time.Time
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if first.IsZero() {
				first = time.Now()
			}
			seen = append(seen, fmt.Sprintf("%s@%d", text, time.Since(first).Milliseconds()))
		}
	}
	return strings.Join(seen, " "), lines.Err()
}
