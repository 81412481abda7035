package socks

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
)

const (
	version      = 5
	loginVersion = 1

	methodNone     = 0x00
	methodPassword = 0x02
	methodRefused  = 0xff

	commandConnect = 1

	kindIPv4 = 1
	kindName = 3
	kindIPv6 = 4
)

// A Reply is the second byte of the answer to a request (RFC 1928, section 6).
type Reply byte

const (
	Succeeded    Reply = 0x00
	Failure      Reply = 0x01
	NotAllowed   Reply = 0x02
	NoCommand    Reply = 0x07
	NoAddressing Reply = 0x08
)

var errMalformed = errors.New("not a message of SOCKS5")

// readMethods reads a greeting.
func readMethods(r io.Reader) (methods []byte, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	if head[0] != version || head[1] == 0 {
		return nil, errMalformed
	}
	methods = make([]byte, head[1])
	_, err = io.ReadFull(r, methods)
	return methods, err
}

// readLogin reads a user name and a password (RFC 1929).
func readLogin(r io.Reader) (username, password string, err error) {
	var v [1]byte
	if _, err := io.ReadFull(r, v[:]); err != nil {
		return "", "", err
	}
	if v[0] != loginVersion {
		return "", "", errMalformed
	}
	if username, err = readString(r); err != nil {
		return "", "", err
	}
	password, err = readString(r)
	return username, password, err
}

// readString reads a length, which is not zero, and so many bytes.
func readString(r io.Reader) (string, error) {
	var n [1]byte
	if _, err := io.ReadFull(r, n[:]); err != nil {
		return "", err
	}
	if n[0] == 0 {
		return "", errMalformed
	}
	b := make([]byte, n[0])
	_, err := io.ReadFull(r, b)
	return string(b), err
}

// A request is what a client wants, as it was sent.
type request struct {
	command byte
	kind    byte
	name    string     // kindName
	addr    netip.Addr // the other kinds
	port    uint16
}

func readRequest(r io.Reader) (q request, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return q, err
	}
	if head[0] != version || head[2] != 0 {
		return q, errMalformed
	}
	q.command, q.kind = head[1], head[3]
	switch q.kind {
	case kindName:
		q.name, err = readString(r)
	case kindIPv4:
		var b [4]byte
		_, err = io.ReadFull(r, b[:])
		q.addr = netip.AddrFrom4(b)
	case kindIPv6:
		var b [16]byte
		_, err = io.ReadFull(r, b[:])
		q.addr = netip.AddrFrom16(b).Unmap()
	default:
		err = errMalformed
	}
	if err != nil {
		return q, err
	}
	var port [2]byte
	_, err = io.ReadFull(r, port[:])
	q.port = binary.BigEndian.Uint16(port[:])
	return q, err
}

// reply is the answer to a request. The address in it is nobody's: what was dialled is none of the client's business.
func reply(code Reply) []byte { return []byte{version, byte(code), 0, kindIPv4, 0, 0, 0, 0, 0, 0} }
