package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
	"portreeve.dev/policies/httphead"
)

// Kinds of failure after an allowing verdict, beside the dialer's own words and the reasons.
const (
	failClient  = "client_gone"
	failTLS     = "upstream_tls"
	failTimeout = "upstream_timeout"
	failReset   = "upstream_reset"
	failDial    = "dial_failed"
	failUpgrade = "upstream_upgrade"
)

// failureKind names an error from a dial or a round trip; ctx is the connection's or the request's.
func failureKind(ctx context.Context, err error) string {
	var refused *RefusedError
	var dial *DialError
	var refusal *httphead.Refusal
	var by killed
	switch {
	case errors.As(err, &refused):
		return refused.Verdict.Reason.String()
	case errors.As(err, &refusal):
		return reasonOf(refusal).String()
	case errors.As(context.Cause(ctx), &by), errors.As(err, &by):
		return by.Error()
	case ctx.Err() != nil, errors.Is(err, errClientGone):
		return failClient
	case errors.As(err, &dial):
		return dial.Kind
	case isTLSError(err):
		return failTLS
	case isTimeout(err), errors.Is(err, context.DeadlineExceeded):
		return failTimeout
	case errors.Is(err, errNotDialled):
		return failDial
	}
	return failReset
}

// errClientGone marks an error of the client's side.
var errClientGone = errors.New("client gone")

// unread says why a request's body could not be read to its end: its form, or the client left. Of HTTP/2 the library has ended the stream already.
func (c *connection) unread(err error) error {
	var refusal *httphead.Refusal
	var network net.Error
	switch {
	case errors.As(err, &refusal), errors.Is(err, http.ErrBodyReadAfterClose): // the latter behind an early answer
		return err
	case c.guard == nil, errors.Is(err, io.ErrUnexpectedEOF), errors.As(err, &network), errors.Is(err, net.ErrClosed), isTLSError(err):
		return errors.Join(errClientGone, err)
	}
	return &httphead.Refusal{Status: http.StatusBadRequest, Detail: "the body can't be read"} // what the server finds where the guard found nothing
}

func isTLSError(err error) bool {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert *net.OpError // crypto/tls has no type for alerts
	return errors.As(err, &certificate) || errors.As(err, &record) ||
		errors.As(err, &alert) && (alert.Op == "remote error" || alert.Op == "local error")
}

// refusedLater writes down that the dialer refused what the policy allowed: a verdict of its own, on what the name led to.
func (c *connection) refusedLater(err error, d *decisions.Decision, j judgement) (judgement, *decisions.Decision) {
	var refused *RefusedError
	if !errors.As(err, &refused) {
		return j, d
	}
	j.v = refused.Verdict
	return c.denyLater(j, refused.Addr, d)
}

// denyLater writes down a refusal of what was allowed and recorded as d: a decision of its own, which the answer names. addr, if valid, is what
// was refused.
func (c *connection) denyLater(j judgement, addr netip.Addr, d *decisions.Decision) (judgement, *decisions.Decision) {
	j.req.Now = c.p.cfg.Now()
	denied := c.decision(d.Layer, d.Level, j)
	if addr.IsValid() {
		denied.Addr = addr.String()
	}
	if c.record(denied) != nil {
		return j, d // refused it is in any case, and the end of the allowed one says so too
	}
	return j, denied
}

// refusedLater is the connection's for a request: also what came behind its head may be refused, and its flow be ended before there is an answer.
func (x *exchange) refusedLater(err error, f failed, d *decisions.Decision, j judgement) (judgement, *decisions.Decision) {
	var refused *RefusedError
	var refusal *httphead.Refusal
	switch {
	case !f.refuses():
		return j, d
	case errors.As(err, &refused):
		return x.c.refusedLater(err, d, j)
	case errors.As(err, &refusal):
		return x.c.denyLater(j.unreadable(refusal), netip.Addr{}, d)
	}
	j = j.deny(f.reason)
	if f.code == failUnreadable {
		j.v.Message = "The host's answer can't be searched for the stored credential, so it was not passed on."
	}
	return x.c.denyLater(j, netip.Addr{}, d)
}

// A failed says how a failure of the upstream is answered.
type failed struct {
	status int
	code   string
	reason policies.Reason
}

// refuses: the answer is a refusal of ours, and no word about an upstream that was allowed and did not answer.
func (f failed) refuses() bool {
	return f.code == failUnreadable || f.status != http.StatusBadGateway && f.status != http.StatusGatewayTimeout
}

// answerTo chooses the answer for a kind of failure: refused, unreachable and silent must be told apart.
func answerTo(ctx context.Context, err error, kind string) failed {
	var by killed
	var refused *RefusedError
	var dial *DialError
	var refusal *httphead.Refusal
	switch {
	case errors.As(err, &refused):
		reason := refused.Verdict.Reason
		return failed{statusOf(reason), reason.String(), reason}
	case kind == failUnreadable:
		return failed{http.StatusBadGateway, failUnreadable, policies.ReasonSecretUnavailable}
	case errors.As(err, &refusal):
		reason := reasonOf(refusal)
		return failed{refusal.Status, reason.String(), reason}
	case errors.As(context.Cause(ctx), &by), errors.As(err, &by):
		reason := policies.Reason(by)
		return failed{statusOf(reason), reason.String(), reason}
	case kind == failTLS:
		return failed{http.StatusBadGateway, failTLS, policies.ReasonDialFailed}
	case errors.As(err, &dial) && dial.Resolving:
		return failed{http.StatusBadGateway, "upstream_unresolved", policies.ReasonResolveFailed}
	case errors.As(err, &dial) && dial.OfProxy:
		return failed{http.StatusBadGateway, policies.ReasonCompanyProxy.String(), policies.ReasonCompanyProxy}
	case kind == failTimeout, kind == "dial_timeout":
		return failed{http.StatusGatewayTimeout, failTimeout, policies.ReasonTimeout}
	case errors.As(err, &dial), kind == failDial:
		return failed{http.StatusBadGateway, "upstream_unreachable", policies.ReasonDialFailed}
	}
	return failed{http.StatusBadGateway, failReset, policies.ReasonDialFailed}
}
