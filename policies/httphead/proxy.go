package httphead

import (
	"bytes"
	"io"
)

// ParseProxy judges a whole head of a request to a forward proxy: CONNECT with host:port, or the absolute form of http.
func ParseProxy(b []byte) (Head, *Refusal) {
	h := Head{ContentLength: -1, proxy: true}
	err := h.parse(b)
	return h, err
}

// ReadProxy reads the head of one request to a proxy and judges it. It returns what it read: the head, and what came behind
// it; of a refused head what there was of it. The error is a *Refusal, or src's own; the caller sets the deadline.
func ReadProxy(src io.Reader) (h Head, head, rest []byte, err error) {
	r := NewReader(src)
	for {
		if len(r.buf) > 0 {
			end, refusal := r.headEnd(r.buf)
			if refusal != nil {
				return h, r.buf, nil, refusal
			}
			if end > 0 {
				h, refusal = ParseProxy(r.buf[:end:end])
				if refusal != nil {
					return h, r.buf[:end:end], nil, refusal
				}
				return h, r.buf[:end:end], r.buf[end:], nil
			}
		}
		if err := r.fill(); err != nil {
			return h, nil, nil, err
		}
	}
}

// Connect reports whether the request asks for a tunnel.
func (h *Head) Connect() bool { return string(h.Method) == "CONNECT" }

// mayOmitHost: clients of HTTP/1.0 send CONNECT without a Host.
func (h *Head) mayOmitHost() bool { return h.proxy && h.Minor == 0 && h.Connect() }

// proxyTarget holds the target to a form that names a destination, the same one as Host.
func (h *Head) proxyTarget() *Refusal {
	if !h.Connect() {
		if _, ok := cutPrefixFold(h.Target, "http://"); !ok {
			return errProxyTarget
		}
		return h.target()
	}
	if h.Chunked || h.ContentLength > 0 {
		return errConnectBody
	}
	i := bytes.LastIndexByte(h.Target, ':')
	if !validAuthority(h.Target) || i < 0 || h.Target[i-1] == ':' || h.Target[len(h.Target)-1] == ']' {
		return errProxyTarget // also without a port: nobody should have to guess it
	}
	if len(h.Host) > 0 && !bytes.EqualFold(h.Host, h.Target) && !bytes.EqualFold(h.Host, h.Target[:i]) {
		return errAuthority
	}
	return nil
}
