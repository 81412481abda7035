package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"portreeve.dev/egress/proxy/clienthello"
	"portreeve.dev/policies"
	"portreeve.dev/policies/hostname"
)

// serveTLS judges a TLS connection by its hello and passes it through or opens it, as the rule says.
func (c *connection) serveTLS(allowed policies.Protocol) (handed bool) {
	protocol := policies.TLS
	if allowed.Has(policies.HTTPS) {
		protocol = policies.HTTPS
	}
	req := c.request(policies.StageConnect, protocol)
	hello, _, err := c.readHello()
	if err != nil {
		return c.refuseHello(judgement{req: req}, err)
	}
	if c.host == "" {
		c.claim, _ = hostname.Normalize(string(hello.ServerName)) // what is no name is refused below
	}
	remove, err := c.use(req, true, &c.live, c.kill)
	if err != nil {
		return c.alertDrop(judgement{req: req}.full(err))
	}
	j := c.judge(req)
	if j.v.Allowed() {
		if reason := c.checkHello(&hello, j); reason != "" {
			j = j.deny(reason)
		}
	}
	switch {
	case !j.v.Allowed():
		remove()
		return c.alertDrop(j)
	case protocol == policies.HTTPS && j.v.TLS == policies.Inspect:
		remove() // each request on it is a flow of its own
		return c.open(j, &hello)
	case c.grantedTLS(hello.ServerName):
		remove()
		return c.alertDrop(j.deny(policies.ReasonSecretUnavailable))
	}
	defer remove()
	level := levelSNI
	if c.host == "" {
		level = levelAddress
	}
	c.relay(level, j, relaying{tls: true, ech: hello.ECH})
	return false
}

// readHello reads the ClientHello and puts it back.
func (c *connection) readHello() (clienthello.Hello, []byte, error) {
	return c.readHelloBy(c.since.Add(c.p.cfg.Timeouts.Hello))
}

func (c *connection) readHelloBy(deadline time.Time) (clienthello.Hello, []byte, error) {
	_ = c.client.SetReadDeadline(deadline)
	defer c.client.SetReadDeadline(time.Time{})
	hello, taken, err := clienthello.ReadAfter(c.client.peeked, c.client.Conn)
	c.client.peeked = taken
	c.client.touch(len(taken))
	return hello, taken, err
}

// refuseHello records a hello that could not be read to its end.
func (c *connection) refuseHello(j judgement, err error) (handed bool) {
	switch {
	case isTimeout(err):
		return c.drop(j.deny(policies.ReasonTimeout))
	case errors.Is(err, clienthello.ErrMalformed), errors.Is(err, clienthello.ErrTooLarge), errors.Is(err, clienthello.ErrNotTLS):
		_ = c.record(c.decision(layerConnect, levelAddress, j.deny(policies.ReasonParse)))
		c.alert(alertDecodeError)
		return false
	}
	return c.drop(j.deny(policies.ReasonParse)) // the client left in the middle of it
}

// checkHello compares the server name with the name that the connection is to, and returns why not.
func (c *connection) checkHello(h *clienthello.Hello, j judgement) policies.Reason {
	if len(h.ServerName) == 0 {
		if c.host != "" {
			return policies.ReasonSNIMissing
		}
		return "" // by address: the rule names the address
	}
	name := string(h.ServerName)
	if name != c.host {
		normal, err := hostname.Normalize(name)
		if err != nil {
			return policies.ReasonHostInvalid
		}
		name = normal
	}
	switch {
	case c.host == "":
		// The server name is only a claim here, but one that a rule may forbid.
		if v := c.judgeAlias(j.req, name); !v.Allowed() {
			return v.Reason
		}
	case name != c.host:
		return policies.ReasonSNIMismatch
	}
	return ""
}

// alertDrop records a refusal on a connection whose hello was read, and answers it.
func (c *connection) alertDrop(j judgement) (handed bool) {
	if c.record(c.decision(layerConnect, levelSNI, j)) != nil {
		resetOnClose(c.client)
		return false
	}
	c.alert(alertAccessDenied)
	return false
}

// open ends TLS here and hands what is inside to the HTTP server.
func (c *connection) open(j judgement, hello *clienthello.Hello) (handed bool) {
	host := c.host
	if host == "" {
		host = c.dst.Addr().String()
	}
	h2, ok := c.offersH2(j, hello)
	if !ok {
		resetOnClose(c.client)
		return false
	}
	cfg, err := c.p.openers.config(c.ctx, openerKey{c.binding.Org, host, h2})
	if err != nil {
		c.p.certifying.Do(func() { c.p.cfg.Log.Error("making a certificate", "err", err, "sandbox", c.binding.Sandbox) })
		_ = c.record(c.decision(layerConnect, levelSNI, j.deny(policies.ReasonProtocol)))
		c.alert(alertInternalError)
		return false
	}
	conn := tls.Server(c.client, cfg)
	ctx, cancel := context.WithTimeout(c.ctx, c.p.cfg.Timeouts.Hello)
	defer cancel()
	if err := conn.HandshakeContext(ctx); err != nil {
		// Mostly a client that doesn't trust the org's CA.
		c.p.opening.Do(func() { c.p.cfg.Log.Info("opening a connection", "err", err, "sandbox", c.binding.Sandbox) })
		return false
	}
	c.opened = true
	c.authority = c.usualAuthority(443)
	if conn.ConnectionState().NegotiatedProtocol == "h2" {
		return c.p.inbox.Put(newH2Conn(conn, c))
	}
	c.guard = newGuard(conn, c)
	return c.p.inbox.Put(c.guard)
}

// openers keeps one TLS configuration per org, host and what is offered there, so that clients can resume their sessions there and
// nowhere else.
type openers struct {
	certificates Certificates
	configs      *lru.Cache[openerKey, opener]
}

type openerKey struct {
	org, host string
	h2        bool
}

type opener struct {
	leaf   *tls.Certificate
	config *tls.Config
}

var errNoCertificates = errors.New("opening TLS is not set up")

func newOpeners(certificates Certificates) (*openers, error) {
	configs, err := lru.New[openerKey, opener](1024)
	return &openers{certificates: certificates, configs: configs}, err
}

func (o *openers) config(ctx context.Context, key openerKey) (*tls.Config, error) {
	if o.certificates == nil {
		return nil, errNoCertificates
	}
	leaf, err := o.certificates.Leaf(ctx, key.org, key.host)
	if err != nil {
		return nil, err
	}
	if have, ok := o.configs.Get(key); ok && have.leaf == leaf {
		return have.config, nil
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if key.h2 {
		cfg.NextProtos = []string{"h2", "http/1.1"}
	}
	o.configs.Add(key, opener{leaf, cfg})
	return cfg, nil
}
