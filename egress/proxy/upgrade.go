package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

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
	removeHopByHop(resp.Header)
	nc, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		end.Error = failUpgrade
		panic(http.ErrAbortHandler)
	}
	defer nc.Close()
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
	var wg sync.WaitGroup
	wg.Go(func() {
		end.BytesIn, _ = pumpOne(nc, up)
		nc.Close()
	})
	n, _ := pumpOne(up, client)
	up.Close()
	wg.Wait()
	x.sent.Add(n)
	end.Error = x.c.moved(nil)
	if by, ok := context.Cause(x.ctx).(killed); ok {
		end.Error = by.Error()
	}
}

func pumpOne(dst io.Writer, src io.Reader) (n int64, err error) {
	buf := buffers.small.Get().(*[relayBuffer]byte)
	defer buffers.small.Put(buf)
	return io.CopyBuffer(onlyWriter{dst}, onlyReader{src}, buf[:])
}

// onlyWriter and onlyReader hide shortcuts that would allocate a buffer of their own.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)
