package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
)

// upgrade goes on as a WebSocket, if that is what was asked for and what was agreed to.
func (x *exchange) upgrade(resp *http.Response, j judgement, d *decisions.Decision, end *Closing) {
	up, ok := resp.Body.(io.ReadWriteCloser)
	if !ok || !x.webSocket || !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") {
		end.Error = failUpgrade
		x.answer(j, failed{http.StatusBadGateway, failUpgrade, "dial_failed"}, d.ID)
		return
	}
	cleanAnswer(resp.Header)
	nc, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		end.Error = failUpgrade
		panic(http.ErrAbortHandler)
	}
	defer nc.Close()
	if refusal := x.c.guard.reader.Refusal(); refusal != nil { // a client waits for 101 (RFC 6455, section 4.1); what came before it was read as a request, and is none
		end.Error = reasonOf(refusal).String()
		x.c.denyLater(j.unreadable(refusal), netip.Addr{}, d)
		return
	}
	x.c.guard.reader.Release()
	x.c.watch.extend(x.p.cfg.Timeouts.WebSocketIdle)

	fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
	_ = resp.Header.Write(rw)
	_, _ = rw.WriteString("\r\n")
	if err := rw.Flush(); err != nil {
		end.Error = failClient
		return
	}
	x.pump(nc, rw.Reader, up, end)
}

// pump moves bytes both ways until one side ends. A WebSocket says goodbye in its own frames, so an end is the end of both.
func (x *exchange) pump(nc net.Conn, client *bufio.Reader, up io.ReadWriteCloser, end *Closing) {
	stop := context.AfterFunc(x.ctx, func() { up.Close(); x.c.client.Close() })
	defer stop()
	from, done := x.scrubBody(up)
	var wg sync.WaitGroup
	var inErr error
	wg.Go(func() {
		end.BytesIn, inErr = pumpOne(nc, from, &x.live, &x.live.In)
		nc.Close()
	})
	_, _ = pumpOne(up, client, &x.live, &x.live.Out)
	up.Close()
	wg.Wait()
	done()
	end.Error = x.c.moved(nil)
	var by killed
	if errors.As(context.Cause(x.ctx), &by) || errors.As(inErr, &by) {
		end.Error = by.Error()
	}
}

func pumpOne(dst io.Writer, src io.Reader, live *egress.Live, moved *atomic.Int64) (n int64, err error) {
	buf := buffers.small.Get().(*[relayBuffer]byte)
	defer buffers.small.Put(buf)
	return io.CopyBuffer(countingWriter{dst, live, moved}, onlyReader{src}, buf[:])
}

// A countingWriter says as it goes how much was written.
type countingWriter struct {
	w     io.Writer
	live  *egress.Live
	moved *atomic.Int64 // its bytes one way
}

func (c countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if n > 0 {
		c.moved.Add(int64(n))
		c.live.Moved()
	}
	return n, err
}

// onlyReader hides shortcuts that would allocate a buffer of their own.
type onlyReader struct{ io.Reader }
