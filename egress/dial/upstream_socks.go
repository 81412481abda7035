package dial

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
)

// Of SOCKS5 (RFC 1928) and its login (RFC 1929).
const (
	socksVersion  = 5
	loginVersion  = 1
	methodNone    = 0
	methodLogin   = 2
	methodRefused = 0xff
	kindIPv4      = 1
	kindName      = 3
	kindIPv6      = 4
)

// askSOCKS asks for target by SOCKS5. It reads its answers to the byte: what follows is the target's.
func (u *UpstreamProxy) askSOCKS(c net.Conn, target string) error {
	method, err := u.chooseMethod(c)
	if err == nil && method == methodLogin {
		err = u.logIn(c)
	}
	if err == nil {
		err = askConnect(c, target)
	}
	var known *proxyError
	if err != nil && !errors.As(err, &known) {
		err = &proxyError{ProxyAnswer, fmt.Errorf("speaking SOCKS5 with the company's proxy: %w", err)}
	}
	return err
}

// chooseMethod lets the proxy choose among what we can.
func (u *UpstreamProxy) chooseMethod(c net.Conn) (byte, error) {
	hello := []byte{socksVersion, 1, methodNone}
	if u.User != "" {
		hello = []byte{socksVersion, 2, methodNone, methodLogin}
	}
	if _, err := c.Write(hello); err != nil {
		return 0, err
	}
	var answer [2]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return 0, err
	}
	switch {
	case answer[0] != socksVersion:
		return 0, fmt.Errorf("it answers with version %d", answer[0])
	case answer[1] == methodRefused:
		return 0, &proxyError{ProxyLogin, errors.New("the company's proxy wants another login")}
	case !slices.Contains(hello[2:], answer[1]):
		return 0, fmt.Errorf("it chooses method %d, which was not offered", answer[1])
	}
	return answer[1], nil
}

func (u *UpstreamProxy) logIn(c net.Conn) error {
	password := u.Password.Reveal()
	m := append([]byte{loginVersion, byte(len(u.User))}, u.User...)
	m = append(append(m, byte(len(password))), password...)
	if _, err := c.Write(m); err != nil {
		return err
	}
	var answer [2]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		return err
	}
	if answer[1] != 0 {
		return &proxyError{ProxyLogin, errors.New("the company's proxy does not accept the login")}
	}
	return nil
}

func askConnect(c net.Conn, target string) error {
	ask, err := socksConnect(target)
	if err != nil {
		return err
	}
	if _, err := c.Write(ask); err != nil {
		return err
	}
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	switch {
	case head[0] != socksVersion:
		return fmt.Errorf("it answers with version %d", head[0])
	case head[1] != 0:
		return &proxyError{ProxyRefused, fmt.Errorf("the company's proxy answers with SOCKS5 reply %d", head[1])}
	}
	return skipAddress(c, head[3])
}

// skipAddress reads the address that the proxy says it uses, which tells us nothing.
func skipAddress(r io.Reader, kind byte) error {
	size := 0
	switch kind {
	case kindIPv4:
		size = 4
	case kindIPv6:
		size = 16
	case kindName:
		var n [1]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return err
		}
		size = int(n[0])
	default:
		return fmt.Errorf("it answers with an address of kind %d", kind)
	}
	_, err := io.CopyN(io.Discard, r, int64(size)+2)
	return err
}

// socksConnect writes the request for target.
func socksConnect(target string) ([]byte, error) {
	host, portText, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		return nil, err
	}
	ask := []byte{socksVersion, 1, 0}
	addr, err := netip.ParseAddr(host)
	switch {
	case err != nil && len(host) > 255:
		return nil, errors.New("the name is over 255 bytes")
	case err != nil:
		ask = append(append(ask, kindName, byte(len(host))), host...)
	case addr.Is4():
		ask = append(append(ask, kindIPv4), addr.AsSlice()...)
	default:
		ask = append(append(ask, kindIPv6), addr.AsSlice()...)
	}
	return binary.BigEndian.AppendUint16(ask, uint16(port)), nil
}
