package proxy

import (
	"context"
	"net/http"
	"strings"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// SelfHost is the one host that is answered here, and SelfHeader the field that a request to it must carry with the value 1:
// a page in a browser, or a client that was tricked into a redirect, can't set it. Below SelfPublic is what everybody may read and
// what the programs that read it can't ask for with a field of ours: lists of revoked certificates.
const (
	SelfHost   = "portreeve.internal"
	SelfHeader = "X-Portreeve-Self"
	SelfPublic = "/ca/"
)

type bindingKey struct{}

// BindingOf tells the handler of portreeve.internal which sandbox is asking. It is known by the wire, not by the request.
func BindingOf(ctx context.Context) (egress.Binding, bool) {
	b, ok := ctx.Value(bindingKey{}).(egress.Binding)
	return b, ok
}

// serveLocal answers a request to portreeve.internal. Nothing leaves, so no policy is asked and no decision recorded.
func (x *exchange) serveLocal() {
	if _, reason := x.c.sameIdentity(x.r.Host); reason != "" {
		x.problem(judgement{v: policies.Denied(policies.ReasonIdentityMismatch)}, http.StatusMisdirectedRequest, "")
		return
	}
	list, public := strings.CutPrefix(x.r.URL.Path, SelfPublic)
	public = public && x.r.Method == http.MethodGet && !strings.Contains(list, "/")
	if v := x.r.Header.Values(SelfHeader); (len(v) != 1 || v[0] != "1") && !public {
		x.problem(judgement{v: policies.Verdict{Reason: policies.ReasonNoRule, Message: "Send the header " + SelfHeader + ": 1 with requests to " + SelfHost + "."}}, http.StatusForbidden, "")
		return
	}
	ctx := context.WithValue(x.r.Context(), bindingKey{}, x.c.binding)
	x.c.p.cfg.Self.ServeHTTP(x.w, x.r.WithContext(ctx))
}
