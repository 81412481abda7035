package dial

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
)

// maxAnswerHead is how much a proxy may say before the connection begins.
const maxAnswerHead = 8 << 10

// askHTTP asks for target with CONNECT. What follows the answer's head is left unread: it is the target's.
func (u *UpstreamProxy) askHTTP(c net.Conn, target string) error {
	ask := "CONNECT " + target + " HTTP/1.1\r\nHost: " + target + "\r\n"
	if u.User != "" {
		login := base64.StdEncoding.EncodeToString(slices.Concat([]byte(u.User+":"), u.Password.Reveal()))
		ask += "Proxy-Authorization: Basic " + login + "\r\n"
	}
	if _, err := io.WriteString(c, ask+"\r\n"); err != nil {
		return &proxyError{ProxyAnswer, fmt.Errorf("asking the company's proxy: %w", err)}
	}
	head, err := readHead(c)
	if err != nil {
		return &proxyError{ProxyAnswer, fmt.Errorf("reading the answer of the company's proxy: %w", err)}
	}
	return readAnswer(head)
}

// readAnswer says what an answer's head means. Only 200 means that there is a connection.
func readAnswer(head []byte) error {
	r, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), &http.Request{Method: http.MethodConnect})
	if err != nil {
		return &proxyError{ProxyAnswer, fmt.Errorf("the company's proxy answers with something else than HTTP: %w", err)}
	}
	r.Body.Close()
	switch r.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusProxyAuthRequired:
		return &proxyError{ProxyLogin, errors.New("the company's proxy wants another login: status 407")}
	}
	return &proxyError{ProxyRefused, fmt.Errorf("the company's proxy answers with status %d", r.StatusCode)}
}

// readHead reads up to the empty line, byte for byte, as whoever speaks first behind it may have spoken already.
func readHead(r io.Reader) ([]byte, error) {
	head := make([]byte, 0, 256)
	var b [1]byte
	for !bytes.HasSuffix(head, []byte("\r\n\r\n")) {
		if len(head) == maxAnswerHead {
			return nil, fmt.Errorf("its head is over %d bytes", maxAnswerHead)
		}
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return nil, err
		}
		head = append(head, b[0])
	}
	return head, nil
}
