package ingress

import (
	"context"
	"errors"
	"net/http"
	"time"

	"portreeve.dev/ingress/forward"
	"portreeve.dev/ingress/front"
	"portreeve.dev/ingress/route"
	"portreeve.dev/ingress/streams"
	"portreeve.dev/ingress/wake"
)

// Our own answers.
var (
	notFound      = front.Problem{Status: http.StatusNotFound, Code: "tunnel_not_found", Detail: "there is no tunnel of this name"}
	ended         = front.Problem{Status: http.StatusGone, Code: "tunnel_ended", Detail: "this tunnel has expired or was deleted"}
	stale         = front.Problem{Status: http.StatusServiceUnavailable, Code: "routes_stale", Detail: "whether there is a tunnel of this name can't be told now", RetryAfter: 2 * time.Second}
	tokenRequired = front.Problem{Status: http.StatusUnauthorized, Code: "token_required", Detail: "this tunnel wants its token, as the header X-Portreeve-Token or once as ?portreeve_token="}
	foreign       = front.Problem{Status: http.StatusForbidden, Code: "foreign_origin", Detail: "another site may not do this with the cookie of this tunnel"}
	asleep        = front.Problem{Status: http.StatusServiceUnavailable, Code: "asleep", Detail: "the sandbox sleeps, and requests of this kind don't wake it", RetryAfter: time.Second}
	waking        = front.Problem{Status: http.StatusServiceUnavailable, Code: "waking", Detail: "the sandbox is being woken", RetryAfter: time.Second, Reload: time.Second}
	roomFull      = front.Problem{Status: http.StatusServiceUnavailable, Code: "waiting_room_full", Detail: "too many requests wait for this sandbox", RetryAfter: time.Second, GRPC: front.GRPCExhausted}
	tooMany       = front.Problem{Status: http.StatusTooManyRequests, Code: "too_many_requests", Detail: "too many requests are open through this tunnel", RetryAfter: time.Second, GRPC: front.GRPCExhausted}
	stopping      = front.Problem{Status: http.StatusServiceUnavailable, Code: "stopping", Detail: "the gateway stops", RetryAfter: time.Second}
	revoked       = front.Problem{Status: http.StatusUnauthorized, Code: "token_required", Detail: "access to this tunnel was changed"}
	restarted     = front.Problem{Status: http.StatusServiceUnavailable, Code: "sandbox_restarted", Detail: "the sandbox paused or restarted while the request was under way", RetryAfter: time.Second}
	portClosed    = front.Problem{Status: http.StatusBadGateway, Code: "port_closed", Detail: "the sandbox runs, but nothing listens on the port of this tunnel"}
	badAnswer     = front.Problem{Status: http.StatusBadGateway, Code: "bad_app_answer", Detail: "the app gave no proper answer"}
	unreachable   = front.Problem{Status: http.StatusBadGateway, Code: "sandbox_unreachable", Detail: "the sandbox can't be reached now"}
)

// wakeProblem says why a request was not held to its end.
func wakeProblem(err error) front.Problem {
	var failed *wake.FailedError
	var spent *wake.SpentError
	switch {
	case errors.Is(err, errPage), errors.Is(err, wake.ErrBudget):
		return waking
	case errors.Is(err, wake.ErrFull):
		return roomFull
	case errors.As(err, &spent):
		return front.Problem{Status: http.StatusTooManyRequests, Code: "wake_budget_spent", Detail: "the sandbox sleeps, and " + spent.Error(), RetryAfter: spent.RetryAfter, GRPC: front.GRPCExhausted}
	case errors.Is(err, wake.ErrClosed):
		return stopping
	case errors.As(err, &failed):
		return front.Problem{Status: http.StatusServiceUnavailable, Code: "wake_failed", Detail: "the sandbox could not be woken", RetryAfter: failed.RetryAfter, Reload: failed.RetryAfter}
	}
	return unreachable
}

// forwardProblem says why a request was not forwarded.
func forwardProblem(err error) front.Problem {
	var why streams.Reason
	switch {
	case errors.As(err, &why):
		switch why {
		case streams.Expired, streams.Deleted:
			return ended
		case streams.Revoked:
			return revoked
		case streams.Shutdown:
			return stopping
		}
		return restarted
	case errors.Is(err, route.ErrGone), errors.Is(err, route.ErrUnknown), errors.Is(err, streams.ErrEnded):
		return ended
	case errors.Is(err, route.ErrStale):
		return stale
	case errors.Is(err, streams.ErrFull):
		return tooMany
	case errors.Is(err, forward.ErrStale):
		return restarted
	case errors.Is(err, forward.ErrPortClosed):
		return portClosed
	case errors.Is(err, forward.ErrBadAnswer):
		return badAnswer
	case errors.Is(err, context.DeadlineExceeded):
		return unreachable
	}
	return unreachable
}
