package httphead

import "net/http"

// A Refusal says why a request was not let through. Its texts are constant: nothing of the client's is in them.
type Refusal struct {
	Status int    // the HTTP status to answer with
	Detail string // one clause
}

func (r *Refusal) Error() string { return "request refused: " + r.Detail }

func bad(detail string) *Refusal { return &Refusal{Status: http.StatusBadRequest, Detail: detail} }

var (
	errTooLarge     = &Refusal{http.StatusRequestHeaderFieldsTooLarge, "request head too large"}
	errTooMany      = &Refusal{http.StatusRequestHeaderFieldsTooLarge, "too many header lines"}
	errMethod       = &Refusal{http.StatusMethodNotAllowed, "method not allowed here"}
	errExpectation  = &Refusal{http.StatusExpectationFailed, "unknown expectation"}
	errVersion      = &Refusal{http.StatusHTTPVersionNotSupported, "not HTTP/1.0 or HTTP/1.1"}
	errRequestLine  = bad("malformed request line")
	errMethodName   = bad("malformed method")
	errTarget       = bad("malformed request target")
	errLineEnd      = bad("line without CRLF")
	errFold         = bad("folded header line")
	errFieldName    = bad("malformed header name")
	errFieldValue   = bad("control character in a header value")
	errHostCount    = bad("not exactly one Host")
	errHost         = bad("malformed Host")
	errAuthority    = bad("request target and Host name different authorities")
	errLength       = bad("malformed or repeated Content-Length")
	errEncoding     = bad("unsupported Transfer-Encoding")
	errTwoFramings  = bad("both Content-Length and Transfer-Encoding")
	errChunkSize    = bad("malformed chunk size")
	errChunkEnd     = bad("chunk without CRLF")
	errTrailerField = bad("trailer that is not allowed")
	errProxyTarget  = bad("not a request to a proxy: CONNECT host:port, or the absolute form of http")
	errConnectBody  = bad("CONNECT with a body")
)
