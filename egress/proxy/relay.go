package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"portreeve.dev/policies"
)

const (
	relayBuffer = 4 << 10  // while little moves: an idle relay should hold little
	spliceAfter = 64 << 10 // then the kernel moves the bytes, at the price of a pipe
	spliceChunk = 1 << 20
	spliceQuiet = time.Second // without a byte: the pipe is given back
	largeBuffer = 32 << 10
)

// relayRaw serves a connection that is not looked into: record, dial, move bytes. Where only SSH or PostgreSQL is allowed, it has to
// begin like one.
func (c *connection) relayRaw(allowed policies.Protocol) (handed bool) {
	protocol := policies.TCP
	if !allowed.Has(policies.TCP) {
		protocol = c.namedProtocol(allowed)
	}
	req := c.request(policies.StageConnect, protocol)
	remove, err := c.use(req, true, &c.live, c.kill)
	if err != nil {
		return c.drop(judgement{req: req}.full(err))
	}
	defer remove()
	j := c.judge(req)
	if j.v.Allowed() && c.granted() {
		j = j.deny(policies.ReasonSecretUnavailable)
	}
	way := relaying{}
	if j.v.Allowed() {
		var reason policies.Reason
		if way, reason = c.namedWay(protocol); reason != "" {
			j = j.deny(reason)
		}
	}
	if !j.v.Allowed() {
		return c.drop(j)
	}
	c.relay(levelAddress, j, way)
	return false
}

// A relaying is what is particular to a relay.
type relaying struct {
	tls bool // the client speaks TLS, and is answered in it
	ech bool // its hello may hide another name than the one that was judged
	// greet, if set, moves the first messages of a protocol, and says what they are not.
	greet func(up net.Conn, end *Closing) error
}

// relay records the verdict, dials and moves bytes until both sides are done.
func (c *connection) relay(level string, j judgement, way relaying) {
	begun := time.Now()
	d := c.decision(layerConnect, level, j)
	if c.record(d) != nil {
		resetOnClose(c.client)
		return
	}
	j.lives(&c.live, d.ID, level)
	up, addr, err := c.reach(j, way)
	end := Closing{Addr: addr}
	fail := func(err error) {
		end.Error, end.Duration = c.failure(err), time.Since(begun)
		c.refusedLater(err, d, j)
		c.complete(d, end)
		c.answerFailure(err, way.tls)
	}
	if err != nil {
		fail(err)
		return
	}
	defer up.Close()
	remove, err := c.reached(j.req, addr)
	if err != nil {
		fail(&RefusedError{Verdict: j.full(err).v, Addr: addr})
		return
	}
	defer remove()
	if way.greet != nil {
		stop := context.AfterFunc(c.ctx, func() { resetOnClose(up); up.Close() })
		err := way.greet(up, &end)
		stop()
		if err != nil {
			resetOnClose(up)
			fail(err)
			return
		}
	}
	c.move(up, &end)
	end.Duration = time.Since(begun)
	c.complete(d, end)
}

// reach connects to what was judged.
func (c *connection) reach(j judgement, way relaying) (net.Conn, netip.Addr, error) {
	up, addr, err := c.dial(c.ctx, c.target(j))
	if err != nil || !way.ech || c.p.cfg.AllowOuterECH {
		return up, addr, err
	}
	return c.reachOuter(j, up, addr)
}

// dial bounds the dialer in time.
func (c *connection) dial(ctx context.Context, t Target) (net.Conn, netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, c.p.cfg.Timeouts.Dial)
	defer cancel()
	return c.p.dial(ctx, t)
}

// dial asks the dialer. An org for which there are no descriptors left has what it keeps idle closed first.
func (p *Proxy) dial(ctx context.Context, t Target) (net.Conn, netip.Addr, error) {
	nc, addr, err := p.cfg.Dialer.Dial(ctx, t)
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Verdict.Reason == policies.ReasonBudget {
		p.pools.release(t.Org)
		nc, addr, err = p.cfg.Dialer.Dial(ctx, t)
	}
	return nc, addr, err
}

// answerFailure tells a client that its allowed connection failed.
func (c *connection) answerFailure(err error, isTLS bool) {
	var refused *RefusedError
	switch {
	case !isTLS:
		resetOnClose(c.client)
	case errors.As(err, &refused):
		c.alert(alertAccessDenied)
	default:
		c.alert(alertInternalError)
	}
}

// move copies both ways. Each direction ends with a FIN to its target, so that a half-closed connection goes on; an error
// in one ends both. It returns once both are done.
func (c *connection) move(up net.Conn, end *Closing) {
	stop := context.AfterFunc(c.ctx, func() { resetOnClose(up); up.Close() })
	defer stop()
	var inErr error
	var wg sync.WaitGroup
	wg.Go(func() {
		var n int64
		n, inErr = c.pipe(c.client, up)
		end.BytesIn += n
		c.half(up, inErr)
	})
	n, err := c.pipe(up, c.client)
	end.BytesOut += n
	c.half(up, err)
	wg.Wait()
	end.Error = c.moved(inErr) // with all of the answer through, what the client still sent matters to nobody
}

// half ends everything after a failed direction.
func (c *connection) half(up net.Conn, err error) {
	if err == nil {
		return
	}
	resetOnClose(up)
	up.Close()
	resetOnClose(c.client)
	c.client.Close()
}

// moved names how a relay ended.
func (c *connection) moved(err error) string {
	if cause := context.Cause(c.ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause.Error()
	}
	if err != nil {
		return "reset"
	}
	return ""
}

// pipe copies src to dst until the end of src, which it passes on as FIN: by hand while little moves, then in the kernel, until
// nothing does.
func (c *connection) pipe(dst, src net.Conn) (n int64, err error) {
	from := c.source(src)
	for err == nil {
		var by, in int64
		if by, err = c.copyByHand(dst, from); err == nil {
			in, err = c.splice(dst, from)
		}
		n += by + in
	}
	if err == io.EOF {
		err = ignoreClosed(closeWrite(dst))
	}
	return n, err
}

// copyByHand moves bytes until there is much to move, which is nil. io.EOF is the end of the source.
func (c *connection) copyByHand(dst net.Conn, from *source) (moved int64, err error) {
	for moved < spliceAfter {
		data, err := from.next()
		if len(data) > 0 {
			n, werr := dst.Write(data)
			moved += int64(n)
			if werr != nil {
				err = werr
			}
		}
		from.release()
		if err != nil {
			return moved, err
		}
	}
	return moved, nil
}

// splice moves bytes in the kernel, if both sides are TCP and there are descriptors for it, until nothing came for a while: then
// it gives those back. Such a copy doesn't show what it moves before it returns, so it is made to return now and then.
func (c *connection) splice(dst net.Conn, src *source) (moved int64, err error) {
	to, from := plainTCP(dst), plainTCP(src.conn)
	if to == nil || from == nil || len(c.client.peeked) > 0 {
		src.enlarge()
		return 0, nil
	}
	done, ok := c.meter.Pipes()
	if !ok {
		src.enlarge()
		return 0, nil
	}
	defer done()
	quiet := min(spliceQuiet, c.p.cfg.Timeouts.Idle/8)
	defer from.SetReadDeadline(time.Time{})
	for {
		_ = from.SetReadDeadline(time.Now().Add(quiet))
		most := c.meter.Chunk(spliceChunk)
		n, err := io.Copy(to, io.LimitReader(from, most))
		moved += n
		c.spliced(dst, int(n))
		switch {
		case err != nil && isTimeout(err) && c.ctx.Err() == nil:
			if n == 0 {
				return moved, nil
			}
		case err != nil:
			return moved, err
		case n < most:
			return moved, io.EOF
		}
	}
}

// spliced counts what went past the client's own Read and Write.
func (c *connection) spliced(dst net.Conn, n int) {
	c.client.touch(n)
	if dst == net.Conn(c.client) {
		c.went(n)
	} else {
		c.came(n)
	}
}

func ignoreClosed(err error) error {
	var op *net.OpError
	if errors.Is(err, net.ErrClosed) || errors.As(err, &op) && op.Op == "close" { // ENOTCONN: the other side is gone
		return nil
	}
	return err
}

// buffers are shared by all copies.
var buffers = struct{ small, large sync.Pool }{
	small: sync.Pool{New: func() any { return new([relayBuffer]byte) }},
	large: sync.Pool{New: func() any { return new([largeBuffer]byte) }},
}

// failure names why there is no upstream.
func (c *connection) failure(err error) string { return failureKind(c.ctx, err) }
