package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"

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
	failParse   = "parse_error"
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
		return failParse
	case errors.As(context.Cause(ctx), &by), errors.As(err, &by):
		return by.Error()
	case ctx.Err() != nil:
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
	denied := c.decision(d.Layer, d.Level, j)
	if refused.Addr.IsValid() {
		denied.Addr = refused.Addr.String()
	}
	if c.record(denied) != nil {
		return j, d // refused it is in any case, and the end of the allowed one says so too
	}
	return j, denied
}

// A failed says how a failure of the upstream is answered.
type failed struct {
	status int
	code   string
	reason policies.Reason
}

// answerTo chooses the answer for a kind of failure: refused, unreachable and silent must be told apart.
func answerTo(ctx context.Context, err error, kind string) failed {
	var by killed
	var refused *RefusedError
	var dial *DialError
	switch {
	case errors.As(err, &refused):
		return failed{http.StatusForbidden, refused.Verdict.Reason.String(), refused.Verdict.Reason}
	case kind == failUnreadable:
		return failed{http.StatusBadGateway, failUnreadable, policies.ReasonSecretUnavailable}
	case kind == failParse:
		return failed{http.StatusBadRequest, failParse, policies.ReasonParse}
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
