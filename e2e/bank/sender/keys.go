package main

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"strings"
)

// keyUpdates are messages of TLS 1.3 by which the sender's keys become others, as no library sends them on demand. What the
// other side says about it is read by a later step.
type keyUpdates struct {
	Count int    `json:"count"`
	Each  int    `json:"each"` // messages in one record, default 1
	Ask   bool   `json:"ask"`  // for the other side's keys to become others too
	Then  string `json:"then"` // sent under the last keys
}

func (t *talk) updateKeys(k *keyUpdates) said {
	client, is := t.conn.(*tls.Conn)
	if !is || client.ConnectionState().CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
		return bad("not TLS 1.3 with AES-128-GCM")
	}
	s, err := newSealer(t.secrets.String())
	if err != nil {
		return bad("%v", err)
	}
	message := []byte{24, 0, 0, 1, 0}
	if k.Ask {
		message[4] = 1
	}
	for n := 0; n < k.Count; n += max(1, k.Each) {
		each := min(max(1, k.Each), k.Count-n)
		if err := s.write(client.NetConn(), 22, bytes.Repeat(message, each)); err != nil {
			return ok("cut after %d: %s", n, word(err))
		}
		for range each {
			s.next()
		}
	}
	if k.Then != "" {
		return of(s.write(client.NetConn(), 23, []byte(k.Then)), "sent")
	}
	return ok("sent")
}

// A sealer is the writing half of a TLS 1.3 connection on which nothing was written yet: RFC 8446, sections 5.2 and 7.
type sealer struct {
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	seq    uint64
}

// newSealer takes the client's secret out of a key log.
func newSealer(log string) (*sealer, error) {
	for line := range strings.Lines(log) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "CLIENT_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(f[2])
			if err != nil {
				return nil, err
			}
			s := &sealer{secret: secret}
			return s, s.use()
		}
	}
	return nil, fmt.Errorf("the key log has no secret of the client")
}

func (s *sealer) use() error {
	block, err := aes.NewCipher(expand(s.secret, "key", 16))
	if err != nil {
		return err
	}
	s.aead, err = cipher.NewGCM(block)
	s.iv, s.seq = expand(s.secret, "iv", 12), 0
	return err
}

// next goes on to the keys that follow.
func (s *sealer) next() {
	s.secret = expand(s.secret, "traffic upd", sha256.Size)
	s.use()
}

func (s *sealer) write(c net.Conn, kind byte, data []byte) error {
	nonce := bytes.Clone(s.iv)
	for i, b := range binary.BigEndian.AppendUint64(nil, s.seq) {
		nonce[4+i] ^= b
	}
	s.seq++
	head := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(data)+1+s.aead.Overhead()))
	_, err := c.Write(s.aead.Seal(head, nonce, append(bytes.Clone(data), kind), head))
	return err
}

// expand is HKDF-Expand-Label with an empty context.
func expand(secret []byte, label string, n int) []byte {
	info := binary.BigEndian.AppendUint16(nil, uint16(n))
	info = append(append(info, byte(len("tls13 "+label))), "tls13 "+label...)
	out, err := hkdf.Expand(sha256.New, secret, string(append(info, 0)), n)
	if err != nil {
		panic(err)
	}
	return out
}
