package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
)

// outgoing makes the request that goes upstream: to the destination that was judged, with the path that was judged.
// Of the client's request it takes the method, the fields, the query and the body.
func (x *exchange) outgoing() *http.Request {
	scheme := "http"
	if x.c.opened {
		scheme = "https"
	}
	out := &http.Request{
		Method: x.r.Method,
		URL:    &url.URL{Scheme: scheme, Host: x.c.authority, Opaque: x.path, RawQuery: x.query, ForceQuery: x.hasQuery && x.query == ""},
		Host:   x.c.authority,
		Header: x.r.Header,
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: x.r.ContentLength,
		Trailer:       announced(x.r.Trailer),
	}
	if x.r.ContentLength != 0 {
		out.Body = &countedBody{ReadCloser: x.r.Body, c: x.c, live: &x.live, from: x.r, room: out.Trailer}
	}
	return out.WithContext(x.ctx)
}

// announced makes room for the trailers that the client said it would send. Others are not passed on: nobody could judge
// them, as the server adds them to its own map when the request is long on its way.
func announced(trailer http.Header) http.Header {
	if len(trailer) == 0 {
		return nil
	}
	room := make(http.Header, len(trailer))
	for name := range trailer {
		room[name] = nil
	}
	return room
}

// countedBody counts what is sent of a body, and moves the announced trailers at its end. Transports read bodies on goroutines
// of their own, and look for trailers on the same one.
type countedBody struct {
	io.ReadCloser
	c    *connection
	live *egress.Live
	from *http.Request
	room http.Header
	// ended: it was read to its end. A transport asks once more, to see that nothing follows; by then the answer may have begun,
	// with which the server closes the body, and the transport would take that for a failure and cut the answer off.
	ended bool
}

func (b *countedBody) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.live.Out.Add(int64(n))
		b.live.Moved()
	}
	if b.ended = err == io.EOF; b.ended {
		for name := range b.room {
			b.room[name] = b.from.Trailer[name]
		}
	} else if err != nil {
		err = b.c.unread(err)
	}
	return n, err
}

// forward sends the request and passes the answer back. The decision is recorded already, and closed here in every case.
func (x *exchange) forward(pool *pool, out *http.Request, j judgement, d *decisions.Decision) {
	j.lives(&x.live, d.ID, d.Level)
	j.lives(&x.c.live, d.ID, d.Level) // a connection shows the last of its requests
	var end Closing
	defer func() {
		end.BytesOut, end.Duration = x.live.Out.Load(), time.Since(x.begun)
		if end.Addr = j.req.Addr; j.req.Host != "" {
			end.Addr = pool.last()
		}
		x.tellReflected(d, &end)
		x.c.complete(d, end)
	}()
	if out.Body != nil {
		// An early answer must not leave the transport reading the body while the server reads it too.
		defer out.Body.Close()
	}
	way := &dialling{c: x.c, req: j.req, target: x.c.target(j), uses: d.Secrets, onlyH1: x.webSocket}
	out = out.WithContext(context.WithValue(out.Context(), diallingKey{}, way))
	resp, err := pool.transport.RoundTrip(out)
	if err != nil {
		x.fail(err, j, d, &end)
		return
	}
	defer resp.Body.Close()
	x.reached(j, pool)
	end.Status = resp.StatusCode
	if !x.readable(resp) {
		end.Error = failUnreadable
		f := answerTo(x.ctx, errUnreadable, failUnreadable)
		j, denied := x.refusedLater(errUnreadable, f, d, j)
		x.answer(j, f, denied.ID)
		return
	}
	x.scrubFields(resp.Header)
	if resp.StatusCode == http.StatusSwitchingProtocols {
		x.upgrade(resp, j, d, &end)
		return
	}
	if resp.StatusCode < 200 {
		x.fail(errBadAnswer, j, d, &end)
		return
	}
	x.head(resp)
	body, done := x.scrubBody(resp.Body)
	end.BytesIn, err = x.body(resp, body)
	done()
	if err != nil {
		end.Error = failureKind(x.ctx, err)
		panic(http.ErrAbortHandler) // the client must see that the answer is not whole
	}
	x.trailers(resp)
}

// reached notes for who lists flows where the request went.
func (x *exchange) reached(j judgement, pool *pool) {
	addr := j.req.Addr
	if j.req.Host != "" {
		addr = pool.last()
	}
	if addr.IsValid() {
		remote := netip.AddrPortFrom(addr, j.req.Port)
		x.live.Reach(remote)
		x.c.live.Reach(remote)
	}
}

var errBadAnswer = errors.New("an answer that makes no sense")

// fail answers a request that got no answer.
func (x *exchange) fail(err error, j judgement, d *decisions.Decision, end *Closing) {
	var refused *RefusedError
	if x.c.guard != nil && !errors.As(err, &refused) {
		if refusal := x.c.guard.reader.BodyRefusal(); refusal != nil {
			err = refusal
		}
	}
	end.Error = failureKind(x.ctx, err)
	if end.Error == failClient {
		panic(http.ErrAbortHandler)
	}
	x.p.cfg.Log.Debug("forwarding a request", "err", err, "sandbox", x.c.binding.Sandbox)
	f := answerTo(x.ctx, err, end.Error)
	j, d = x.refusedLater(err, f, d, j)
	x.answer(j, f, d.ID)
}

// head passes the answer's head back as it came, without what belongs to the upstream connection.
func (x *exchange) head(resp *http.Response) {
	cleanAnswer(resp.Header)
	delete(resp.Trailer, HeaderDecision)
	h := x.w.Header()
	for field, values := range resp.Header {
		h[field] = values
	}
	for _, field := range []string{"Content-Type", "Date"} {
		if _, ok := h[field]; !ok {
			h[field] = nil // else the server adds its own
		}
	}
	if resp.ContentLength >= 0 && len(h["Content-Length"]) > 0 {
		h["Content-Length"] = []string{strconv.FormatInt(resp.ContentLength, 10)}
	} else {
		delete(h, "Content-Length")
	}
	if len(resp.Trailer) > 0 {
		names := make([]string, 0, len(resp.Trailer))
		for name := range resp.Trailer {
			names = append(names, name)
		}
		h["Trailer"] = []string{strings.Join(names, ", ")}
		if x.r.ProtoMajor == 1 {
			delete(h, "Content-Length") // HTTP/1 has trailers behind chunks only
		}
	}
	x.w.WriteHeader(resp.StatusCode)
}

// body copies the answer. What has no announced end is flushed piece by piece: events, streams, gRPC.
func (x *exchange) body(resp *http.Response, from io.Reader) (n int64, err error) {
	control := http.NewResponseController(x.w)
	streaming := resp.ContentLength < 0 || strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream")
	if streaming {
		_ = control.Flush() // the head too must not wait for the first event
	}
	buf := buffers.large.Get().(*[largeBuffer]byte)
	defer buffers.large.Put(buf)
	for {
		m, err := from.Read(buf[:])
		if m > 0 {
			w, werr := x.w.Write(buf[:m])
			n += int64(w)
			x.live.In.Add(int64(w))
			x.live.Moved()
			if werr != nil {
				return n, werr
			}
			if streaming {
				if err := control.Flush(); err != nil {
					return n, err
				}
			}
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// trailers passes on what came behind the body, also what was not announced.
func (x *exchange) trailers(resp *http.Response) {
	if len(resp.Trailer) == 0 {
		return
	}
	h := x.w.Header()
	announced := h.Get("Trailer")
	delete(resp.Trailer, HeaderDecision)
	x.scrubFields(resp.Trailer)
	for name, values := range resp.Trailer {
		if !hasToken([]string{announced}, strings.ToLower(name)) {
			name = http.TrailerPrefix + name
		}
		h[name] = values
	}
}
