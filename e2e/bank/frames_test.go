package bank

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// serveBadFrames runs an HTTP/2 server whose answers carry fields that belong to HTTP/1: the one that the path begins with.
func (w *world) serveBadFrames(port string, config *tls.Config) {
	w.t.Helper()
	l, err := w.lab.Net.Listen("tcp", w.lab.TCP.Addr.String()+port)
	if err != nil {
		w.t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.SetDeadline(time.Now().Add(10 * time.Second))
			done.Go(func() {
				defer c.Close()
				answerBadly(tls.Server(c, config))
			})
		}
	})
	w.t.Cleanup(func() {
		l.Close()
		done.Wait()
	})
}

func answerBadly(c net.Conn) {
	preface := make([]byte, len(http2.ClientPreface))
	r := bufio.NewReader(c)
	if _, err := io.ReadFull(r, preface); err != nil {
		return
	}
	f := http2.NewFramer(c, r)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	f.AllowIllegalWrites = true
	f.WriteSettings()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				f.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			what, _, _ := strings.Cut(strings.TrimPrefix(frame.PseudoValue("path"), "/"), "/")
			value := map[string]string{"connection": "close", "transfer-encoding": "chunked", "content-length": "5"}[what]
			var b bytes.Buffer
			enc := hpack.NewEncoder(&b)
			enc.WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			enc.WriteField(hpack.HeaderField{Name: what, Value: value})
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: frame.StreamID, BlockFragment: b.Bytes(), EndHeaders: true})
			f.WriteData(frame.StreamID, true, []byte("helloHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nsplit"))
		}
	}
}
