package proxy

import (
	"bytes"
	"net/netip"
	"slices"

	"portreeve.dev/policies"
	"portreeve.dev/policies/hostname"
	"portreeve.dev/policies/httphead"
)

// pinned settles which name a real address stands for: the one that this sandbox was given it for. With several, they are returned,
// and what the client says decides.
func (c *connection) pinned() (shared []string) {
	names := c.p.cfg.Names.Pinned(c.binding.Sandbox, c.binding.Incarnation, c.dst.Addr(), c.p.cfg.Now())
	if len(names) != 1 {
		return names
	}
	c.host, c.pin = names[0], c.dst.Addr()
	return nil
}

// chooseName settles which of several names a connection to their common address is for, by its TLS server name or its Host. Where it
// says none of them it is refused, unless rules allow the address itself.
func (c *connection) chooseName(names []string) (refused *judgement) {
	if name := c.saidName(); slices.Contains(names, name) {
		c.host, c.pin = name, c.dst.Addr()
		return nil
	}
	j := c.judge(c.request(policies.StageConnect, 0))
	if j.v.Allowed() {
		return nil
	}
	j = j.deny(policies.ReasonNameShared)
	return &j
}

// saidName is the name that the client asks for, in normal form, empty if it says none. What was read is put back.
func (c *connection) saidName() string {
	var name string
	switch c.sniff(c.p.cfg.Timeouts.Hello) {
	case kindTLS:
		hello, _, err := c.readHello()
		if err != nil {
			return ""
		}
		name = string(hello.ServerName)
	case kindHTTP:
		name = c.peekHost()
	}
	normal, err := hostname.Normalize(name)
	if err != nil {
		return ""
	}
	return normal
}

// peekHost reads the first request's head for its Host. The server reads it again, and holds every request to the name.
func (c *connection) peekHost() string {
	_ = c.client.SetReadDeadline(c.since.Add(c.p.cfg.Timeouts.Hello))
	defer c.client.SetReadDeadline(noDeadline)
	head := c.client.peeked
	for {
		if end := bytes.Index(head, []byte("\r\n\r\n")); end >= 0 {
			parsed, refusal := httphead.Parse(head[:end+4])
			if refusal != nil {
				return ""
			}
			said, _ := identify(string(parsed.Host), 80)
			return said.host
		}
		if len(head) >= httphead.MaxHead {
			return ""
		}
		head = slices.Grow(head, 4<<10)
		n, err := c.client.Conn.Read(head[len(head):min(cap(head), httphead.MaxHead)])
		head = head[:len(head)+n]
		c.client.peeked = head
		c.client.touch(n)
		if err != nil {
			return ""
		}
	}
}

// byAddress asks again about a connection to a name's real address, as one to the address: a rule may allow that for itself. A name that a rule
// denies stays denied.
func (c *connection) byAddress(j judgement) judgement {
	if !c.pin.IsValid() || j.v.Reason != policies.ReasonNoRule {
		return j
	}
	host, pin := c.host, c.pin
	c.host, c.pin = "", netip.Addr{}
	if again := c.judge(c.request(policies.StageConnect, 0)); again.v.Allowed() {
		return again
	}
	c.host, c.pin = host, pin
	return j
}
