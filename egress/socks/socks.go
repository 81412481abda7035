package socks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/credentials"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/policies"
	"portreeve.dev/policies/hostname"
)

// A Proxy judges, records, dials and serves. *proxy.Proxy is one.
type Proxy interface {
	ServeDoor(context.Context, net.Conn, egress.Binding, proxy.DoorTarget)
	RefuseDoor(context.Context, egress.Binding, proxy.DoorTarget, policies.Reason, string) *proxy.DoorRefusal
}

// Config of a door.
type Config struct {
	Proxy     Proxy
	Handshake time.Duration // from the first byte to the reply; default 10 s
	// Entered, if set, is called once it is known whose the connection is and where it goes: from there on the proxy counts it.
	Entered func()
	// Refused, if set, is called for a client that was turned away before it was known whose it is.
	Refused func()
}

// Serve serves one connection and takes it over. It returns when that has ended, or is with the proxy's HTTP server.
func Serve(ctx context.Context, nc net.Conn, keeper credentials.Keeper, cfg Config) {
	if cfg.Handshake <= 0 {
		cfg.Handshake = 10 * time.Second
	}
	if cfg.Refused == nil {
		cfg.Refused = func() {}
	}
	c := &conn{nc: nc, keeper: keeper, cfg: cfg}
	_ = nc.SetDeadline(time.Now().Add(cfg.Handshake))
	b, ok := c.login(ctx)
	if !ok {
		return
	}
	to, ok := c.request(ctx, b)
	if !ok {
		return
	}
	if cfg.Entered != nil {
		cfg.Entered()
	}
	_ = nc.SetDeadline(time.Time{})
	to.Answer = c.answer
	cfg.Proxy.ServeDoor(ctx, nc, b, to)
}

type conn struct {
	nc     net.Conn
	keeper credentials.Keeper
	cfg    Config
}

// login settles whose the connection is.
func (c *conn) login(ctx context.Context) (egress.Binding, bool) {
	methods, err := readMethods(c.nc)
	if err != nil {
		return c.broken(ctx, err)
	}
	known, free := c.keeper.Known()
	switch {
	case free && bytes.IndexByte(methods, methodNone) >= 0:
		_, err = c.nc.Write([]byte{version, methodNone})
		if err != nil {
			c.nc.Close()
		}
		return known, err == nil
	case bytes.IndexByte(methods, methodPassword) >= 0:
		if _, err := c.nc.Write([]byte{version, methodPassword}); err != nil {
			c.nc.Close()
			return known, false
		}
	default:
		c.cfg.Refused()
		return known, c.hangUp([]byte{version, methodRefused})
	}
	username, password, err := readLogin(c.nc)
	if err != nil {
		return c.broken(ctx, err)
	}
	a := c.keeper.Admit(ctx, username, password)
	if a.Reason != "" {
		if a.Record { // behind the answer: its time must not say that the sandbox is there
			defer c.cfg.Proxy.RefuseDoor(ctx, a.Binding, proxy.DoorTarget{}, a.Reason, "")
		} else {
			c.cfg.Refused()
		}
		_ = c.nc.SetDeadline(time.Now().Add(c.cfg.Handshake)) // the answer may have been held back
		return a.Binding, c.hangUp([]byte{loginVersion, 1})
	}
	if _, err := c.nc.Write([]byte{loginVersion, 0}); err != nil {
		c.nc.Close()
		return a.Binding, false
	}
	return a.Binding, true
}

// request settles where the connection goes.
func (c *conn) request(ctx context.Context, b egress.Binding) (to proxy.DoorTarget, ok bool) {
	q, err := readRequest(c.nc)
	if err != nil {
		c.refuse(ctx, b, to, reasonOf(err))
		c.nc.Close()
		return to, false
	}
	to.Addr, to.Port = q.addr, q.port
	switch {
	case q.command != commandConnect:
		c.refuse(ctx, b, to, policies.ReasonProtocol)
		return to, c.hangUp(reply(NoCommand))
	case q.kind != kindName:
		c.refuse(ctx, b, to, policies.ReasonHostInvalid)
		return to, c.hangUp(reply(NoAddressing))
	}
	to.Host, err = hostname.Normalize(q.name)
	if err != nil || q.port == 0 {
		c.refuse(ctx, b, to, policies.ReasonHostInvalid)
		return to, c.hangUp(reply(NotAllowed))
	}
	return to, true
}

// answer tells the client what became of its request.
func (c *conn) answer(refusal *proxy.DoorRefusal) error {
	_ = c.nc.SetWriteDeadline(time.Now().Add(time.Second))
	defer c.nc.SetWriteDeadline(time.Time{})
	if refusal == nil {
		_, err := c.nc.Write(reply(Succeeded))
		return err
	}
	code := NotAllowed
	switch refusal.Reason {
	case policies.ReasonBudget, policies.ReasonNoPolicy, policies.ReasonStalePolicy, policies.ReasonRecordFailed:
		code = Failure // not for good
	}
	c.hangUp(reply(code))
	return nil
}

// broken is the end of a client that doesn't speak the protocol before it is known whose it is.
func (c *conn) broken(ctx context.Context, err error) (b egress.Binding, ok bool) {
	defer c.nc.Close()
	if b, ok = c.keeper.Known(); ok {
		c.refuse(ctx, b, proxy.DoorTarget{}, reasonOf(err))
		return b, false
	}
	c.cfg.Refused()
	return b, false
}

// refuse records a refusal, unless the client only left.
func (c *conn) refuse(ctx context.Context, b egress.Binding, to proxy.DoorTarget, reason policies.Reason) {
	if reason != "" {
		c.cfg.Proxy.RefuseDoor(ctx, b, to, reason, "")
	}
}

// reasonOf is the reason for an error of reading; empty for a client that left between two messages.
func reasonOf(err error) policies.Reason {
	var ne net.Error
	switch {
	case errors.Is(err, errMalformed), errors.Is(err, io.ErrUnexpectedEOF):
		return policies.ReasonParse
	case errors.As(err, &ne) && ne.Timeout():
		return policies.ReasonTimeout
	}
	return ""
}

// hangUp sends the last message and closes, after what the client still sends: a close with unread bytes would be a reset,
// which can overtake the message. It is always false.
func (c *conn) hangUp(last []byte) bool {
	defer c.nc.Close()
	if _, err := c.nc.Write(last); err != nil {
		return false
	}
	if w, ok := c.nc.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}
	_ = c.nc.SetReadDeadline(time.Now().Add(time.Second))
	_, _ = io.CopyN(io.Discard, c.nc, 64<<10)
	return false
}
