package proxy

import (
	"strconv"
	"time"

	"portreeve.dev/policies"
)

const (
	web = policies.HTTPS | policies.HTTP | policies.TLS
	raw = policies.TCP | policies.SSH | policies.Postgres
)

// dispatch goes on with an allowed connection, by what is allowed on it and what the client speaks.
func (c *connection) dispatch(j judgement) (handed bool) {
	allowed := j.v.Protocols
	wait := c.p.cfg.Timeouts.Hello
	switch {
	case allowed&(web|raw) == 0:
		return c.drop(j.deny(policies.ReasonProtocol))
	case allowed&web == 0:
		return c.relayRaw(allowed) // the server may speak first: don't wait for the client
	case allowed&raw != 0:
		wait = c.p.cfg.Timeouts.FirstBytes
	}
	switch k := c.sniff(wait); {
	case k == kindGone:
		return false
	case k == kindTLS && allowed&(policies.HTTPS|policies.TLS) != 0:
		return c.serveTLS(allowed)
	case k == kindHTTP && allowed.Has(policies.HTTP):
		return c.serveClear()
	case allowed&raw != 0:
		return c.relayRaw(allowed)
	case k == kindSilent:
		return c.drop(j.deny(policies.ReasonTimeout))
	case k == kindTLS: // clear HTTP is allowed, TLS is not
		return c.refuseTLS(c.judge(c.request(policies.StageConnect, policies.HTTPS)), levelAddress)
	case allowed&(policies.HTTPS|policies.TLS) != 0:
		return c.drop(j.deny(policies.ReasonNotTLS))
	default:
		return c.drop(j.deny(policies.ReasonNotHTTP))
	}
}

// serveClear hands clear HTTP to the server, behind the guard.
func (c *connection) serveClear() (handed bool) {
	c.authority = c.usualAuthority(80)
	c.guard = newGuard(c.client, c)
	return c.p.inbox.Put(c.guard)
}

// usualAuthority is how a client names the destination when the scheme's port goes without saying.
func (c *connection) usualAuthority(port uint16) string {
	host := c.host
	switch {
	case host != "":
	case c.dst.Addr().Is6():
		host = "[" + c.dst.Addr().String() + "]"
	default:
		host = c.dst.Addr().String()
	}
	if c.dst.Port() == port {
		return host
	}
	return host + ":" + strconv.Itoa(int(c.dst.Port()))
}

// runLocal serves portreeve.internal, which is clear HTTP on port 80 and nothing else.
func (c *connection) runLocal() (handed bool) {
	if c.dst.Port() != 80 {
		j := judgement{req: c.request(policies.StageConnect, 0), v: policies.Denied(policies.ReasonProtocol)}
		j.req.Host = SelfHost
		return c.drop(j)
	}
	c.host = SelfHost
	if !c.welcome() {
		return false
	}
	return c.serveClear()
}

// refuse answers a denied connection in its own protocol, where that can be told, and resets it otherwise.
func (c *connection) refuse(j judgement) (handed bool) {
	if c.answer != nil || c.host == "" || c.dst.Port() != 80 && c.dst.Port() != 443 {
		return c.drop(j)
	}
	switch c.sniff(c.p.cfg.Timeouts.Hello) {
	case kindHTTP:
		c.denied.Store(&j)
		return c.serveClear()
	case kindTLS:
		return c.refuseTLS(j, levelAddress)
	default:
		return c.drop(j)
	}
}

// drop records the refusal and resets the connection.
func (c *connection) drop(j judgement) (handed bool) {
	if answer := c.answer; answer != nil {
		c.answer = nil
		_ = answer(c.turnAway(j))
		return false
	}
	_ = c.record(c.decision(layerConnect, levelAddress, j))
	resetOnClose(c.client)
	return false
}

// refuseTLS records the refusal and answers the ClientHello with an alert.
func (c *connection) refuseTLS(j judgement, level string) (handed bool) {
	_, _, err := c.readHello()
	if c.record(c.decision(layerConnect, level, j)) != nil || err != nil {
		resetOnClose(c.client)
		return false
	}
	c.alert(alertAccessDenied)
	return false
}

// Alerts of RFC 8446, section 6.
const (
	alertAccessDenied  = 49
	alertDecodeError   = 50
	alertInternalError = 80
)

// alert says in the client's protocol that there will be no connection.
func (c *connection) alert(code byte) {
	_ = c.client.SetDeadline(time.Now().Add(time.Second))
	if _, err := c.client.Conn.Write([]byte{21, 3, 3, 0, 2, 2, code}); err != nil {
		return
	}
	// FIN first: a close with unread bytes would be a reset, which can overtake the alert.
	_ = c.client.CloseWrite()
	var rest [512]byte
	for range 64 {
		if _, err := c.client.Conn.Read(rest[:]); err != nil {
			return
		}
	}
}
