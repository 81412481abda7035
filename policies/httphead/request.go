package httphead

import "net/http"

// CheckRequest holds a request that came by HTTP/2, which Parse never saw, to the same rules as far as they have a meaning there.
func CheckRequest(r *http.Request) *Refusal {
	method := []byte(r.Method)
	if len(method) == 0 || len(method) > 32 || !all(method, isUpper) {
		return errMethodName
	}
	switch r.Method {
	case "CONNECT", "TRACE", "TRACK", Refused:
		return errMethod
	}
	if r.RequestURI == "" || r.RequestURI[0] != '/' || !all([]byte(r.RequestURI), isTarget) {
		return errTarget
	}
	if !validAuthority([]byte(r.Host)) {
		return errHost
	}
	if hosts, ok := r.Header["Host"]; ok && (len(hosts) != 1 || hosts[0] != r.Host) {
		return errAuthority
	}
	lines := 0
	for name, values := range r.Header {
		if !all([]byte(name), isToken) {
			return errFieldName
		}
		lines += len(values)
		for _, v := range values {
			if !all([]byte(v), isValue) {
				return errFieldValue
			}
		}
	}
	if lines > MaxLines {
		return errTooMany
	}
	if e, ok := r.Header["Expect"]; ok && (len(e) != 1 || !equalFold([]byte(e[0]), "100-continue")) {
		return errExpectation
	}
	return nil
}
