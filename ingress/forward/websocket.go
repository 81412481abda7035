package forward

import (
	"bufio"
	"net"
	"net/http"
	"strings"
	"time"

	"portreeve.dev/ingress/streams"
)

// carry answers 101 and carries frames until the WebSocket ends. The client's connection is ours now, so there is no
// error to report to anybody.
func (o *outgoing) carry(a *http.Response, c *conn, client net.Conn, reader *bufio.Reader) error {
	defer client.Close()
	_ = client.SetWriteDeadline(time.Now().Add(10 * time.Second))
	w := bufio.NewWriter(client)
	w.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
	h := make(http.Header, len(a.Header))
	o.copyHeader(h, a.Header)
	for name, values := range h {
		if strings.HasPrefix(name, "Sec-Websocket-") {
			name = "Sec-WebSocket-" + name[len("Sec-Websocket-"):]
		}
		if name == "Content-Length" {
			continue
		}
		for _, v := range values {
			writeField(w, name, v)
		}
	}
	w.WriteString("\r\n")
	if w.Flush() != nil {
		return nil
	}
	_ = client.SetWriteDeadline(time.Time{})
	streams.Carry(o.hop.Stream, streams.End{Conn: client, Reader: reader}, streams.End{Conn: c.Conn, Reader: c.r})
	return nil
}
