package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"portreeve.dev/policies"
)

// namedProtocol tells SSH from PostgreSQL where both are allowed: a PostgreSQL client speaks first, and begins with a length.
func (c *connection) namedProtocol(allowed policies.Protocol) policies.Protocol {
	switch {
	case !allowed.Has(policies.SSH):
		return policies.Postgres
	case !allowed.Has(policies.Postgres):
		return policies.SSH
	}
	if first := c.peek(1, c.p.cfg.Timeouts.FirstBytes); len(first) > 0 && first[0] != 'S' {
		return policies.Postgres
	}
	return policies.SSH
}

// namedWay looks at what the client says first, and returns how to go on, or why not to.
func (c *connection) namedWay(protocol policies.Protocol) (relaying, policies.Reason) {
	switch protocol {
	case policies.Postgres:
		first := c.peek(postgresHead, c.p.cfg.Timeouts.Hello)
		switch {
		case len(first) < postgresHead && time.Since(c.since) >= c.p.cfg.Timeouts.Hello:
			return relaying{}, policies.ReasonTimeout
		case postgresKind(first) == postgresOther:
			return relaying{}, policies.ReasonNotPostgres
		}
		return relaying{greet: c.greetPostgres}, ""
	case policies.SSH:
		if first := c.peek(len(sshBanner), c.p.cfg.Timeouts.FirstBytes); len(first) > 0 && !bytes.HasPrefix(first, sshBanner) {
			return relaying{}, policies.ReasonNotSSH
		}
		return relaying{greet: c.greetSSH}, ""
	}
	return relaying{}, ""
}

// peek waits until the client has sent n bytes, or for so long from the accept on, and returns what there is. It is put back.
func (c *connection) peek(n int, wait time.Duration) []byte {
	return c.peekUntil(n, c.since.Add(wait))
}

func (c *connection) peekUntil(n int, deadline time.Time) []byte {
	_ = c.client.SetReadDeadline(deadline)
	defer c.client.SetReadDeadline(noDeadline)
	for len(c.client.peeked) < n {
		buf := make([]byte, 512)
		m, err := c.client.Conn.Read(buf)
		c.client.peeked = append(c.client.peeked, buf[:m]...)
		c.client.touch(m)
		if err != nil {
			break
		}
	}
	return c.client.peeked[:min(n, len(c.client.peeked))]
}

// errNot refuses what turned out to be another protocol once the upstream was reached.
func errNot(reason policies.Reason) error { return &RefusedError{Verdict: policies.Denied(reason)} }

// The messages with which a PostgreSQL client begins (its manual, "Message Formats"): a length and a code.
const (
	postgresHead = 8

	postgresOther   = iota
	postgresEncrypt // SSLRequest or GSSENCRequest
	postgresOpen    // StartupMessage of version 3, or CancelRequest: the rest is in the clear
	postgresTLS     // TLS at once, as clients can since version 17
)

func postgresKind(b []byte) int {
	if len(b) < postgresHead {
		return postgresOther
	}
	length, code := binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])
	switch {
	case b[0] == 22 && b[1] == 3:
		return postgresTLS
	case (code == 80877103 || code == 80877104) && length == postgresHead:
		return postgresEncrypt
	case code == 80877102 && length >= 16 && length <= 12+256:
		return postgresOpen
	case code>>16 == 3 && length > postgresHead && length <= 10000:
		return postgresOpen
	}
	return postgresOther
}

// greetPostgres moves the requests for encryption and their answers, until the connection is encrypted or begins in the clear. TLS inside
// is passed; it has to name the host, if it names any.
func (c *connection) greetPostgres(up net.Conn, end *Closing) error {
	deadline := time.Now().Add(c.p.cfg.Timeouts.Hello)
	for asked := 0; ; asked++ {
		switch postgresKind(c.peekUntil(postgresHead, deadline)) {
		case postgresOpen:
			return nil
		case postgresTLS:
			if asked > 0 { // not behind an answer that said no
				return errNot(policies.ReasonNotPostgres)
			}
			return c.postgresHello(true)
		case postgresEncrypt:
			if asked > 1 { // there are two things to ask for
				return errNot(policies.ReasonNotPostgres)
			}
		default:
			return errNot(policies.ReasonNotPostgres)
		}
		answer, err := c.postgresAsk(up, end, deadline)
		switch {
		case err != nil:
			return err
		case answer == 'S':
			return c.postgresHello(false)
		case answer == 'G', answer == 'E': // wrapped by GSSAPI; an error, and the end
			return nil
		case answer != 'N':
			return errNot(policies.ReasonNotPostgres)
		}
	}
}

// postgresAsk moves one request and its answer of one byte.
func (c *connection) postgresAsk(up net.Conn, end *Closing, deadline time.Time) (answer byte, err error) {
	n, err := io.CopyN(up, c.client, postgresHead)
	end.BytesOut += n
	if err != nil {
		return 0, err
	}
	_ = up.SetReadDeadline(deadline)
	defer up.SetReadDeadline(noDeadline)
	var b [1]byte
	if _, err := io.ReadFull(up, b[:]); err != nil {
		return 0, err
	}
	m, err := c.client.Write(b[:])
	end.BytesIn += int64(m)
	return b[0], err
}

// postgresHello checks the TLS that a connection goes on with.
func (c *connection) postgresHello(direct bool) error {
	hello, _, err := c.readHelloBy(time.Now().Add(c.p.cfg.Timeouts.Hello))
	if err != nil || direct && !hello.Offers("postgresql") {
		return errNot(policies.ReasonNotPostgres)
	}
	j := judgement{req: c.request(policies.StageConnect, policies.Postgres)}
	switch {
	case hello.ECH && !c.p.cfg.AllowOuterECH:
		return errNot(policies.ReasonECH)
	case c.grantedTLS(hello.ServerName):
		return errNot(policies.ReasonSecretUnavailable)
	case len(hello.ServerName) == 0:
		return nil // older clients send none
	}
	if reason := c.checkHello(&hello, j); reason != "" {
		return errNot(reason)
	}
	return nil
}

// An SSH peer begins with its version; a server may say other lines before (RFC 4253, section 4.2).
var sshBanner = []byte("SSH-")

const (
	maxSSHLine     = 255
	maxSSHPreamble = 16 << 10
)

// greetSSH moves the first bytes of both sides, each once it is SSH. Either may wait for the other's.
func (c *connection) greetSSH(up net.Conn, end *Closing) error {
	deadline := time.Now().Add(c.p.cfg.Timeouts.Hello)
	if len(c.client.peeked) > 0 {
		if err := c.sshClient(up, end, deadline); err != nil {
			return err
		}
		return c.sshServer(up, end, deadline)
	}
	if err := c.sshServer(up, end, deadline); err != nil {
		return err
	}
	return c.sshClient(up, end, deadline)
}

// sshClient moves the client's whole line: servers wait for it.
func (c *connection) sshClient(up net.Conn, end *Closing, deadline time.Time) error {
	for n := len(sshBanner); ; {
		said := c.peekUntil(n, deadline)
		if !bytes.HasPrefix(said, sshBanner) || len(said) < n || n > maxSSHLine {
			return errNot(policies.ReasonNotSSH)
		}
		if at := bytes.IndexByte(c.client.peeked, '\n'); at >= 0 {
			n, err := io.CopyN(up, c.client, int64(at+1))
			end.BytesOut += n
			return err
		}
		n = len(c.client.peeked) + 1
	}
}

func (c *connection) sshServer(up net.Conn, end *Closing, deadline time.Time) error {
	_ = up.SetReadDeadline(deadline)
	defer up.SetReadDeadline(noDeadline)
	buf := make([]byte, 0, 512)
	for !bytes.HasPrefix(buf, sshBanner) && !bytes.Contains(buf, []byte("\nSSH-")) {
		if len(buf) >= maxSSHPreamble {
			return errNot(policies.ReasonNotSSH)
		}
		more := make([]byte, 512)
		n, err := up.Read(more)
		buf = append(buf, more[:n]...)
		if n == 0 && errors.Is(err, io.EOF) {
			return errNot(policies.ReasonNotSSH)
		}
		if n == 0 && err != nil {
			return err
		}
	}
	n, err := c.client.Write(buf)
	end.BytesIn += int64(n)
	return err
}
