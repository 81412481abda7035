package forward

import (
	"bufio"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

// An outgoing is a request on its way to the app.
type outgoing struct {
	r       *http.Request
	hop     *Hop
	body    io.Reader // nil for none
	length  int64     // of the body; -1 for chunks
	upgrade bool      // a WebSocket is asked for
	expects bool      // the client waits for 100 before it sends the body
}

func newOutgoing(r *http.Request, hop *Hop) *outgoing {
	o := &outgoing{r: r, hop: hop, length: r.ContentLength}
	if r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody {
		o.body = r.Body
		if hop.Body != nil {
			o.body = hop.Body
		}
		o.expects = hasToken(r.Header["Expect"], "100-continue")
	}
	o.upgrade = hop.Upgrade != nil && isWebSocket(r)
	return o
}

// isWebSocket reports whether r asks for a WebSocket and for nothing else.
func isWebSocket(r *http.Request) bool {
	u := r.Header["Upgrade"]
	return r.ProtoMajor == 1 && r.ProtoMinor == 1 && r.Method == http.MethodGet && r.ContentLength == 0 &&
		len(u) == 1 && strings.EqualFold(u[0], "websocket") && hasToken(r.Header["Connection"], "upgrade")
}

// repeatable reports whether the app may see the request twice.
func (o *outgoing) repeatable() bool {
	switch o.r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return o.body == nil
	}
	return false
}

// writeHead writes everything but the body, and flushes nothing.
func (o *outgoing) writeHead(w *bufio.Writer) {
	r := o.r
	w.WriteString(r.Method)
	w.WriteByte(' ')
	writeTarget(w, r)
	w.WriteString(" HTTP/1.1\r\nHost: ")
	o.writeHost(w)
	gone := named(r.Header["Connection"])
	for name, values := range r.Header {
		if skip(name) || len(gone) > 0 && contains(gone, name) || name == "Origin" {
			continue
		}
		if strings.HasPrefix(name, "Sec-Websocket-") {
			name = "Sec-WebSocket-" + name[len("Sec-Websocket-"):] // as RFC 6455 writes it: some apps compare
		}
		for _, v := range values {
			writeField(w, name, v)
		}
	}
	for _, origin := range r.Header["Origin"] {
		writeField(w, "Origin", o.origin(origin))
	}
	o.writeForwarded(w)
	o.writeFraming(w)
	w.WriteString("\r\n")
}

// skip tells the fields that are written anew, or not at all.
func skip(name string) bool {
	switch name {
	case "Host", "Content-Length", "Expect":
		return true
	}
	return hopByHop(name) || reserved(name)
}

// writeTarget writes path and query as the client sent them, less what access took out of the query.
func writeTarget(w *bufio.Writer, r *http.Request) {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if !strings.HasPrefix(path, "/") { // absolute form, whose authority was compared with Host
		_, path, _ = strings.Cut(path, "://")
		_, path, _ = strings.Cut(path, "/")
		w.WriteByte('/')
	}
	w.WriteString(path)
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		w.WriteByte('?')
		w.WriteString(r.URL.RawQuery)
	}
}

func writeField(w *bufio.Writer, name, value string) {
	w.WriteString(name)
	w.WriteString(": ")
	w.WriteString(value)
	w.WriteString("\r\n")
}

func (o *outgoing) writeHost(w *bufio.Writer) {
	if o.hop.Record.KeepHost {
		w.WriteString(o.hop.Authority)
	} else {
		w.WriteString("localhost:")
		writeInt(w, int64(o.hop.Record.Port))
	}
	w.WriteString("\r\n")
}

// origin translates the tunnel's own Origin into what the app believes to be its own, so that it can tell it from others.
func (o *outgoing) origin(origin string) string {
	if !o.hop.Record.KeepHost && strings.EqualFold(origin, o.hop.origin()) {
		return localOrigin(o.hop.Record.Port)
	}
	return origin
}

// origin is the tunnel's own.
func (h *Hop) origin() string { return h.scheme() + "://" + h.Authority }

func (h *Hop) scheme() string {
	if h.Secure {
		return "https"
	}
	return "http"
}

func localOrigin(port uint16) string { return "http://localhost:" + strconv.Itoa(int(port)) }

// writeForwarded tells the app who called and under which name.
func (o *outgoing) writeForwarded(w *bufio.Writer) {
	h := o.hop
	w.WriteString("X-Forwarded-For: ")
	writeAddr(w, h.Client)
	w.WriteString("\r\nX-Forwarded-Host: ")
	w.WriteString(h.Authority)
	w.WriteString("\r\nX-Forwarded-Proto: ")
	w.WriteString(h.scheme())
	w.WriteString("\r\nForwarded: for=")
	if h.Client.Is4() {
		writeAddr(w, h.Client)
	} else {
		w.WriteString(`"[`)
		writeAddr(w, h.Client)
		w.WriteString(`]"`)
	}
	w.WriteString(`;host="`)
	w.WriteString(h.Authority)
	w.WriteString(`";proto=`)
	w.WriteString(h.scheme())
	w.WriteString("\r\n")
}

func writeAddr(w *bufio.Writer, a netip.Addr) {
	w.Write(a.AppendTo(w.AvailableBuffer()))
}

func writeInt(w *bufio.Writer, n int64) {
	w.Write(strconv.AppendInt(w.AvailableBuffer(), n, 10))
}

func (o *outgoing) writeFraming(w *bufio.Writer) {
	if o.upgrade {
		w.WriteString("Connection: Upgrade\r\nUpgrade: websocket\r\n")
	}
	if hasToken(o.r.Header["Te"], "trailers") {
		w.WriteString("Te: trailers\r\nConnection: TE\r\n")
	}
	switch {
	case o.body == nil:
		switch o.r.Method {
		case http.MethodPost, http.MethodPut, http.MethodPatch:
			w.WriteString("Content-Length: 0\r\n")
		}
	case o.length > 0:
		w.WriteString("Content-Length: ")
		writeInt(w, o.length)
		w.WriteString("\r\n")
	default:
		w.WriteString("Transfer-Encoding: chunked\r\n")
		for name := range o.r.Trailer {
			if trailerAllowed(name) {
				writeField(w, "Trailer", name)
			}
		}
	}
	if o.expects {
		w.WriteString("Expect: 100-continue\r\n")
	}
}

// trailerAllowed bars trailers that mean something at the head of a message.
func trailerAllowed(name string) bool {
	switch name {
	case "Content-Length", "Host", "Content-Encoding", "Content-Type", "Content-Range", "Authorization", "Cookie", "Set-Cookie", "Expect":
		return false
	}
	return !hopByHop(name) && !reserved(name)
}

// An upload is the body on its way, carried by a goroutine of its own: an app may answer before it has read everything.
type upload struct {
	o    *outgoing
	c    *conn
	send chan struct{} // closed when the body may be sent; nil when it may at once
	done chan struct{} // closed at the end; then err is set
	err  error
	once sync.Once
}

// continueTimeout is how long an app may take to say 100, as many never do.
const continueTimeout = time.Second

func (o *outgoing) upload(c *conn) *upload {
	u := &upload{o: o, c: c, done: make(chan struct{})}
	if o.expects {
		u.send = make(chan struct{})
	}
	go u.run()
	return u
}

// proceed lets a body go that waits for 100.
func (u *upload) proceed() {
	if u != nil && u.send != nil {
		u.once.Do(func() { close(u.send) })
	}
}

// finished reports whether the whole body was sent.
func (u *upload) finished() bool {
	if u == nil {
		return true
	}
	select {
	case <-u.done:
		return u.err == nil
	default:
		return false
	}
}

// run is the goroutine of an upload.
func (u *upload) run() {
	defer close(u.done)
	u.err = u.carry()
}

func (u *upload) carry() error {
	w := u.c.w
	if u.o.expects || u.o.length < 0 {
		// The head goes first: who sends this may wait for an answer to it.
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if u.send != nil && !u.wait() {
		return errNotWanted
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	left := u.o.length
	for {
		n, err := u.o.body.Read(*buf)
		if n > 0 {
			if werr := u.write((*buf)[:n]); werr != nil {
				return werr
			}
			left -= int64(n)
		}
		switch {
		case err == io.EOF && u.o.length >= 0 && left > 0:
			return io.ErrUnexpectedEOF
		case err == io.EOF:
			return u.finish()
		case err != nil:
			return err
		}
	}
}

// wait waits for 100, for a while; false when the exchange ended without it.
func (u *upload) wait() bool {
	timer := time.NewTimer(continueTimeout)
	defer timer.Stop()
	select {
	case _, open := <-u.send:
		return !open && !u.c.answered.Load()
	case <-timer.C:
		return !u.c.answered.Load()
	}
}

func (u *upload) write(b []byte) error {
	w := u.c.w
	if u.o.length < 0 {
		w.Write(strconv.AppendInt(w.AvailableBuffer(), int64(len(b)), 16))
		w.WriteString("\r\n")
	}
	w.Write(b)
	if u.o.length < 0 {
		w.WriteString("\r\n")
	}
	return w.Flush()
}

func (u *upload) finish() error {
	w := u.c.w
	if u.o.length < 0 {
		w.WriteString("0\r\n")
		for name, values := range u.o.r.Trailer {
			if !trailerAllowed(name) {
				continue
			}
			for _, v := range values {
				writeField(w, name, v)
			}
		}
		w.WriteString("\r\n")
	}
	return w.Flush()
}
