package forward

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"portreeve.dev/ingress/access"
)

// WaitHeader tells how many milliseconds the request was held while the sandbox was woken.
const WaitHeader = "X-Portreeve-Wake-Ms"

// mostInformational is how many 1xx answers may come before the real one.
const mostInformational = 8

// readAnswer reads the head of the answer, and passes early hints on.
func (o *outgoing) readAnswer(c *conn, w http.ResponseWriter, u *upload) (*http.Response, error) {
	for range mostInformational {
		c.beginHead()
		a, err := http.ReadResponse(c.r, o.r)
		c.head = false
		switch {
		case err != nil:
			return nil, err
		case a.StatusCode == http.StatusSwitchingProtocols:
			return a, nil
		case a.StatusCode >= 200:
			if a.Close {
				a.Header["Connection"] = c.connection()
			}
			c.answered.Store(true)
			return a, nil
		case a.StatusCode == http.StatusContinue:
			u.proceed()
		case a.StatusCode == http.StatusEarlyHints && o.r.ProtoAtLeast(1, 1):
			h := w.Header()
			o.copyHeader(h, a.Header)
			w.WriteHeader(http.StatusEarlyHints)
			clear(h)
		case a.StatusCode < 100:
			return nil, fmt.Errorf("status %d", a.StatusCode)
		}
	}
	return nil, fmt.Errorf("more than %d answers before the last", mostInformational)
}

// copyHeader copies what an app may say.
func (o *outgoing) copyHeader(to, from http.Header) {
	gone := named(from["Connection"])
	for name, values := range from {
		if hopByHop(name) || len(gone) > 0 && contains(gone, name) {
			continue
		}
		switch name {
		case "Alt-Svc":
			continue // it would outlive the tunnel
		case "Set-Cookie":
			if values = access.CleanSetCookie(values); len(values) == 0 {
				continue
			}
		case "Location", "Content-Location":
			for i, v := range values {
				values[i] = o.location(v)
			}
		default:
			if ours(name) {
				continue
			}
		}
		to[name] = values
	}
}

// ours reports whether an answer's header would claim to be from us.
func ours(name string) bool {
	return len(name) > 10 && (strings.EqualFold(name[2:11], "portreeve")) && reserved(name)
}

// location maps the app's view of its own address back to the tunnel's.
func (o *outgoing) location(v string) string {
	if o.hop.Record.KeepHost {
		return v
	}
	local := localOrigin(o.hop.Record.Port)
	if len(v) < len(local) || !strings.EqualFold(v[:len(local)], local) {
		return v
	}
	rest := v[len(local):]
	if rest != "" && rest[0] != '/' && rest[0] != '?' && rest[0] != '#' {
		return v
	}
	return o.hop.origin() + rest
}

// passOn writes the answer to the client. After it began, every failure is ErrAborted.
func (o *outgoing) passOn(a *http.Response, c *conn, w http.ResponseWriter) error {
	h := w.Header()
	o.copyHeader(h, a.Header)
	if h["Content-Type"] == nil {
		h["Content-Type"] = nil // the server would guess one
	}
	for name := range a.Trailer {
		if trailerAllowed(name) {
			h.Add("Trailer", name)
		}
	}
	if o.hop.Waited > 0 {
		h.Set(WaitHeader, strconv.FormatInt(o.hop.Waited.Milliseconds(), 10))
	}
	w.WriteHeader(a.StatusCode)
	if err := o.copyBody(a, c, w); err != nil {
		return fmt.Errorf("%w: %w", ErrAborted, err)
	}
	for name, values := range a.Trailer {
		if trailerAllowed(name) {
			h[name] = values
		}
	}
	return nil
}

// copyBody copies the body. What has no length may be a stream, so nothing of it is kept back.
func (o *outgoing) copyBody(a *http.Response, c *conn, w http.ResponseWriter) error {
	defer a.Body.Close()
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	flusher, _ := w.(http.Flusher)
	always := eventful(a.Header.Get("Content-Type"))
	stream := flusher != nil && o.r.Method != http.MethodHead && (always || a.ContentLength < 0)
	for {
		n, err := a.Body.Read(*buf)
		if n > 0 {
			if _, werr := w.Write((*buf)[:n]); werr != nil {
				return werr
			}
			if stream && err == nil && (always || !c.atEnd()) {
				flusher.Flush()
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// eventful reports whether each piece of a body counts by itself.
func eventful(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.ToLower(strings.Trim(kind, " \t"))
	return kind == "text/event-stream" || strings.HasPrefix(kind, "application/grpc") || strings.HasPrefix(kind, "application/connect+")
}

// atEnd reports whether the end of the chunked body is there already, so that the client may get both at once.
func (c *conn) atEnd() bool {
	n := c.r.Buffered()
	if n < 5 || n > 7 {
		return false
	}
	b, _ := c.r.Peek(n)
	return bytes.HasSuffix(b, []byte("0\r\n\r\n"))
}

// switchProtocols turns the exchange into a WebSocket.
func (o *outgoing) switchProtocols(a *http.Response, c *conn, w http.ResponseWriter) error {
	up := a.Header["Upgrade"]
	if !o.upgrade || len(up) != 1 || !strings.EqualFold(up[0], "websocket") {
		return fmt.Errorf("%w: it switched to what nobody asked for", ErrBadAnswer)
	}
	client, reader, err := o.hop.Upgrade(w)
	if err != nil {
		return fmt.Errorf("taking the connection over: %w", err)
	}
	return o.carry(a, c, client, reader)
}
