package proxy

import (
	"errors"
	"io"
	"net/http"
	"strings"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/secrets"
)

// An Injection is what was put into a request, and what is to be kept out of its answer.
type Injection struct {
	Uses  []decisions.Use
	Scrub *secrets.Scrubber // nil searches nothing
}

// failReflected says that an answer had a stored credential in it, which was replaced.
const failReflected = "secret_reflected"

// failUnreadable says that an answer came in a form that can't be searched, although it has to be.
const failUnreadable = "answer_unreadable"

var errUnreadable = errors.New("an answer that can't be searched")

// askReadable asks for an answer that can be searched, if it has to be: the whole of it, in no encoding.
func (x *exchange) askReadable(h http.Header) {
	if !x.scrub.Bodies() {
		return
	}
	h["Accept-Encoding"] = []string{"identity"}
	if _, ok := h["Grpc-Accept-Encoding"]; ok {
		h["Grpc-Accept-Encoding"] = []string{"identity"}
	}
	for _, field := range []string{"Range", "If-Range", "A-Im", "Sec-Websocket-Extensions"} { // parts, differences, compressed messages
		delete(h, field)
	}
}

// readable reports whether what follows the head of an answer can be searched.
func (x *exchange) readable(resp *http.Response) bool {
	switch {
	case !x.scrub.Bodies(), x.r.Method == http.MethodHead, resp.StatusCode == http.StatusNoContent, resp.StatusCode == http.StatusNotModified:
		return true
	case resp.StatusCode == http.StatusPartialContent, resp.StatusCode == http.StatusIMUsed:
		return false
	}
	for _, field := range []string{"Content-Encoding", "Grpc-Encoding", "Sec-Websocket-Extensions"} {
		for _, list := range resp.Header[field] {
			for coding := range strings.SplitSeq(list, ",") {
				if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
					return false
				}
			}
		}
	}
	return true
}

// scrubFields takes stored credentials out of fields of an answer.
func (x *exchange) scrubFields(h http.Header) {
	if x.scrub.Header(h) {
		x.reflected = true
	}
}

// scrubBody does the same with what follows the head, where that was chosen. done is to be called when nothing more is read.
func (x *exchange) scrubBody(r io.ReadCloser) (body io.ReadCloser, done func()) {
	if !x.scrub.Bodies() {
		return r, func() {}
	}
	scrubbed := x.scrub.Body(r)
	return scrubbed, func() { x.reflected = x.reflected || scrubbed.Found() }
}

// tellReflected says in the end of d that its answer had a stored credential in it. Where that can't say so, because d is counted with others or
// ended with something else, a row beside it does, with Until and no Count: it stands for no further decision.
func (x *exchange) tellReflected(d *decisions.Decision, end *Closing) {
	switch {
	case !x.reflected:
		return
	case !d.Fold && end.Error == "":
		end.Error = failReflected
		return
	}
	beside := *d
	beside.Fold, beside.Closed, beside.Until = false, true, x.p.cfg.Now().UTC()
	beside.Status, beside.Error = end.Status, failReflected
	_ = x.c.record(&beside) // the answer is on its way; what can't be written is counted as lost
}
