package proxy

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"portreeve.dev/policies"
)

// A hello may hide another name inside, encrypted to the server, and nobody else can tell whether it does: clients make up an extension
// that looks the same (GREASE). But the server can be asked whether it has a key to read one with. One that has none answers
// to the outer name, which was judged, whatever the extension holds. See docs/adr/0011-hidden-names.md.

// reachOuter takes a connection for a client whose hello may hide a name, at the address that was dialled. It is let through to a server
// that reads no hidden names, and refused to others.
func (c *connection) reachOuter(j judgement, up net.Conn, addr netip.Addr) (net.Conn, netip.Addr, error) {
	key := memoryKey{about: speaksECH, org: c.binding.Org, host: j.req.Host, addr: addr, port: j.req.Port}
	reads, known := c.p.memory.get(key)
	if !known {
		again := func() (net.Conn, error) { // at the same address, which is judged once more
			t := c.target(j)
			if t.Host != "" {
				t.Pin = addr
			}
			nc, _, err := c.dial(c.ctx, t)
			return nc, err
		}
		var err error
		if reads, err = c.askECH(j, up, again); err != nil {
			return nil, addr, err
		}
		c.p.memory.put(key, reads)
		if up, err = again(); err != nil {
			return nil, addr, err
		}
	}
	if reads {
		up.Close()
		return nil, addr, &RefusedError{Verdict: policies.Denied(policies.ReasonECH), Addr: addr}
	}
	return up, addr, nil
}

// askECH offers the server on the other end of up a hidden name of our own making, for a key that nobody has: a server that reads hidden
// names answers with its keys (RFC 9849, section 7.1). One that can't be made to say is taken for one that does. up is closed.
func (c *connection) askECH(j judgement, up net.Conn, again func() (net.Conn, error)) (reads bool, err error) {
	name := c.outerName(j)
	list, err := echConfigList(name)
	if err != nil {
		up.Close()
		return true, nil // a name that no certificate could have: nothing to ask with
	}
	err = c.shake(up, &tls.Config{
		ServerName: name, MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: list,
		// Whoever it is, is whom the client will talk to, and judges by itself.
		EncryptedClientHelloRejectionVerify: func(tls.ConnectionState) error { return nil },
	})
	var rejected *tls.ECHRejectionError
	switch {
	case errors.As(err, &rejected):
		return len(rejected.RetryConfigList) > 0, nil
	case err == nil: // it read what was encrypted to nobody
		return true, nil
	case c.ctx.Err() != nil:
		return true, err
	}
	// Hidden names need TLS 1.3. A server that chooses less though it was offered that doesn't speak it.
	if up, err = again(); err != nil {
		return true, err
	}
	var version uint16
	err = c.shake(up, &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12, InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		version = s.Version
		return nil
	}})
	return err != nil || version >= tls.VersionTLS13, nil
}

// shake shakes hands on a connection and closes it.
func (c *connection) shake(up net.Conn, config *tls.Config) error {
	defer up.Close()
	ctx, cancel := context.WithTimeout(c.ctx, upstreamHandshake)
	defer cancel()
	return tls.Client(up, config).HandshakeContext(ctx)
}

// outerName is the name in the clear of a client's hello.
func (c *connection) outerName(j judgement) string {
	if j.req.Host != "" {
		return j.req.Host
	}
	return "portreeve.invalid" // by address: any name serves to ask
}

// echConfigList is a list of one configuration with a public key whose private one is thrown away.
func echConfigList(publicName string) ([]byte, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	if len(publicName) == 0 || len(publicName) > 255 {
		return nil, errors.New("no name to ask with")
	}
	config := echConfig(publicName, key.PublicKey())
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(config))), config...), nil
}

// echConfig is one configuration (RFC 9849, section 4).
func echConfig(publicName string, key *ecdh.PublicKey) []byte {
	public := key.Bytes()
	contents := []byte{public[0]}                              // config_id
	contents = binary.BigEndian.AppendUint16(contents, 0x0020) // DHKEM(X25519, HKDF-SHA256)
	contents = append(binary.BigEndian.AppendUint16(contents, uint16(len(public))), public...)
	contents = append(contents, 0, 4, 0, 1, 0, 1) // HKDF-SHA256 with AES-128-GCM
	contents = append(contents, 0, byte(len(publicName)))
	contents = append(contents, publicName...)
	contents = append(contents, 0, 0) // no extensions
	return append(binary.BigEndian.AppendUint16([]byte{0xfe, 0x0d}, uint16(len(contents))), contents...)
}
