package explicit

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"portreeve.dev/egress/proxy"
	"portreeve.dev/policies"
	"portreeve.dev/policies/httphead"
)

// answerTime bounds what a client may take to accept a refusal.
const answerTime = 2 * time.Second

// plainRefusal words a refusal that is in nobody's decisions.
func plainRefusal(status int, reason policies.Reason, message string) *proxy.DoorRefusal {
	if message == "" {
		message = reason.Guidance()
	}
	body, err := json.Marshal(struct {
		Type     string `json:"type"`
		Title    string `json:"title"`
		Status   int    `json:"status"`
		Code     string `json:"code"`
		Reason   string `json:"reason"`
		Guidance string `json:"agent_guidance"`
	}{"https://portreeve.dev/problems/" + reason.String(), "Not let through", status, reason.String(), reason.String(), message})
	if err != nil {
		panic(err) // strings and a number
	}
	return &proxy.DoorRefusal{Status: status, Reason: reason, Body: body}
}

// header is what a refusal is answered with.
func header(h http.Header, r *proxy.DoorRefusal) {
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(r.Body)))
	h.Set("Cache-Control", "no-store")
	h.Set("Connection", "close")
	if r.Status == http.StatusProxyAuthRequired {
		h.Set("Proxy-Authenticate", `Basic realm="portreeve"`)
	}
	if r.Decision != "" {
		h.Set(proxy.HeaderDecision, r.Decision)
	}
}

func write(w http.ResponseWriter, r *proxy.DoorRefusal) {
	header(w.Header(), r)
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body)
}

// away takes the connection out of the HTTP server, so that nothing more of it is parsed, and refuses.
func (s *Server) away(w http.ResponseWriter, refusal *proxy.DoorRefusal) {
	nc, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	hangUp(nc.(*headConn).Conn, refusal)
}

// answer tells the client of a CONNECT what became of it. A refusal is its end, but the close is the caller's.
func answer(nc net.Conn, refusal *proxy.DoorRefusal) error {
	_ = nc.SetWriteDeadline(time.Now().Add(answerTime))
	defer nc.SetWriteDeadline(time.Time{})
	if refusal == nil {
		_, err := io.WriteString(nc, "HTTP/1.1 200 Connection established\r\n\r\n")
		return err
	}
	h := http.Header{}
	header(h, refusal)
	if _, err := fmt.Fprintf(nc, "HTTP/1.1 %d %s\r\n", refusal.Status, http.StatusText(refusal.Status)); err != nil {
		return err
	}
	if err := h.Write(nc); err != nil {
		return err
	}
	if _, err := nc.Write(append([]byte("\r\n"), refusal.Body...)); err != nil {
		return err
	}
	drain(nc)
	return nil
}

// drain reads what the client still sends, unparsed and only for a while: a close with unread bytes would be a reset, which
// can overtake the answer.
func drain(nc net.Conn) {
	if c, ok := nc.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	_ = nc.SetReadDeadline(time.Now().Add(answerTime))
	_, _ = io.CopyN(io.Discard, nc, 4*httphead.MaxHead)
}

// hangUp refuses and closes.
func hangUp(nc net.Conn, refusal *proxy.DoorRefusal) {
	defer nc.Close()
	_ = answer(nc, refusal)
}
