package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/sandboxes"
	"portreeve.dev/nodes/guest/frame"
	"portreeve.dev/policies"
)

// A Problem is a refusal (RFC 9457).
type Problem struct {
	Type      string       `json:"type" doc:"A URI for the kind of problem." example:"https://portreeve.dev/problems/sandbox_not_found"`
	Title     string       `json:"title" example:"Not Found"`
	Status    int          `json:"status" example:"404"`
	Code      string       `json:"code" doc:"A stable word for the kind of problem." example:"sandbox_not_found"`
	Detail    string       `json:"detail,omitempty" doc:"What happened this time."`
	RequestID string       `json:"request_id,omitempty"`
	Errors    []FieldError `json:"errors,omitempty" doc:"The parts of the request that are at fault."`
	header    http.Header
}

// A FieldError is one part of a request and what is wrong with it, never its value.
type FieldError struct {
	Location string `json:"location" example:"body.timeout_seconds"`
	Message  string `json:"message"`
}

func (p *Problem) Error() string             { return p.Code + ": " + p.Detail }
func (p *Problem) GetStatus() int            { return p.Status }
func (p *Problem) GetHeaders() http.Header   { return p.header }
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// problem makes a refusal. detail must hold nothing that the client sent.
func problem(status int, code, detail string, fields ...FieldError) *Problem {
	return &Problem{Type: "https://portreeve.dev/problems/" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: detail, Errors: fields}
}

// invalid is a refusal that names one field.
func invalid(location, message string) *Problem {
	return problem(http.StatusUnprocessableEntity, "invalid_request", "the request is not valid", FieldError{location, message})
}

func notFound(what string) *Problem {
	return problem(http.StatusNotFound, what+"_not_found", "there is no such "+what)
}

func (p *Problem) with(name, value string) *Problem {
	p.header = http.Header{name: {value}}
	return p
}

var overrideErrors sync.Once

// clearHumaErrors replaces huma's error builder, which would repeat the submitted value, for the whole process.
func clearHumaErrors() {
	overrideErrors.Do(func() {
		huma.NewErrorWithContext = func(ctx huma.Context, status int, message string, errs ...error) huma.StatusError {
			p := fromHuma(status, message, errs)
			if ctx != nil {
				p.RequestID = requestID(ctx.Context())
			}
			return p
		}
		huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
			return fromHuma(status, message, errs)
		}
	})
}

func fromHuma(status int, message string, errs []error) *Problem {
	code := map[int]string{
		http.StatusBadRequest: "bad_request", http.StatusUnprocessableEntity: "invalid_request", http.StatusRequestEntityTooLarge: "body_too_large",
		http.StatusUnsupportedMediaType: "content_type", http.StatusNotAcceptable: "not_acceptable", http.StatusRequestTimeout: "request_timeout",
	}[status]
	if code == "" || status >= 500 {
		return problem(http.StatusInternalServerError, "internal", "something went wrong here; the request id finds it in the log")
	}
	p := problem(status, code, message)
	if status == http.StatusUnsupportedMediaType || status == http.StatusNotAcceptable {
		p.Detail = "requests and answers are application/json"
		return p // the details repeat a header
	}
	for _, err := range errs {
		if d, ok := err.(huma.ErrorDetailer); ok {
			p.Errors = append(p.Errors, clearDetail(d.ErrorDetail()))
		}
	}
	return p
}

// clearDetail keeps place and message, and the message only while it does not repeat the value.
func clearDetail(d *huma.ErrorDetail) FieldError {
	f := FieldError{Location: d.Location, Message: d.Message}
	if d.Value == nil {
		return f
	}
	if text := fmt.Sprint(d.Value); len(text) > 3 && strings.Contains(d.Message, text) {
		f.Message = "is not valid"
	}
	return f
}

// refusal turns any error into what the client may know of it, and logs the rest.
func (s *Server) refusal(ctx context.Context, err error) *Problem {
	p := refuse(err)
	if p.Status >= 500 {
		s.Log.LogAttrs(ctx, slog.LevelError, "request failed", slog.Any("err", err), slog.String("request_id", requestID(ctx)), slog.String("reason", p.Code))
	}
	copied := *p
	copied.RequestID = requestID(ctx)
	return &copied
}

func refuse(err error) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	if g, ok := errors.AsType[*GuestError](err); ok {
		return refuseGuest(g.Code)
	}
	if f, ok := errors.AsType[*sandboxes.Failed](err); ok {
		return refuseStart(f)
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return problem(http.StatusNotFound, "not_found", "there is no such thing")
	case errors.Is(err, store.ErrVersion):
		return problem(http.StatusPreconditionFailed, "version_changed", "it was changed meanwhile; read it again")
	case errors.Is(err, store.ErrConflict):
		return problem(http.StatusConflict, "conflict", "it is already there, or still in use")
	case errors.Is(err, store.ErrLimit):
		return problem(http.StatusConflict, "limit_reached", "the org has as many as it may")
	case errors.Is(err, store.ErrBusy):
		return problem(http.StatusServiceUnavailable, "busy", "try again").with("Retry-After", "1")
	case errors.Is(err, store.ErrFull):
		return problem(http.StatusInsufficientStorage, "store_full", "the store's disk is full, and nothing was changed; make room there, then try again")
	case errors.Is(err, store.ErrUnavailable):
		return problem(http.StatusServiceUnavailable, "store_unavailable", "the store can't be reached").with("Retry-After", "5")
	case errors.Is(err, sandboxes.ErrAttached):
		return problem(http.StatusConflict, "attached_sandbox", "nothing can be attached here")
	case errors.Is(err, sandboxes.ErrState):
		return problem(http.StatusConflict, "wrong_state", "the sandbox is not in a state for this")
	case errors.Is(err, sandboxes.ErrPolicy):
		return invalid("body.policy", "there is no such policy")
	}
	return problem(http.StatusInternalServerError, "internal", "something went wrong here; the request id finds it in the log")
}

func refuseStart(f *sandboxes.Failed) *Problem {
	switch f.Sandbox.Reason {
	case sandboxes.ReasonOOM:
		return problem(http.StatusConflict, "out_of_memory", "the sandbox ran out of memory while it started; sandbox "+f.Sandbox.ID)
	case sandboxes.ReasonDeleted:
		return problem(http.StatusConflict, "deleted", "the sandbox was deleted while it started")
	}
	if f.Sandbox.Status == store.Terminating {
		return problem(http.StatusConflict, "deleted", "the sandbox was deleted while it started")
	}
	reason := f.Sandbox.Reason
	if reason == "" {
		reason = "start_failed"
	}
	return problem(http.StatusServiceUnavailable, reason, "the sandbox did not start; sandbox "+f.Sandbox.ID)
}

func refuseGuest(code frame.Code) *Problem {
	c := string(code)
	switch code {
	case frame.CodeNoCommand:
		return problem(422, c, "there is no such command in the sandbox", FieldError{"body.command", "there is no such command"})
	case frame.CodeNotExecutable:
		return problem(422, c, "the command can't be run", FieldError{"body.command", "is not executable"})
	case frame.CodeNoCwd:
		return problem(422, c, "there is no such folder in the sandbox", FieldError{"body.working_dir", "there is no such folder"})
	case frame.CodePathOutside:
		return problem(422, c, "the path leaves the sandbox's folders", FieldError{"path", "must lie in /workspace or /tmp"})
	case frame.CodeBadRequest:
		return problem(422, c, "the sandbox did not accept the request")
	case frame.CodeNotFound:
		return problem(404, c, "there is no such file")
	case frame.CodeNotRegular:
		return problem(409, c, "this is not a regular file")
	case frame.CodePermission:
		return problem(409, c, "the sandbox's user may not do that")
	case frame.CodeTooLarge:
		return problem(413, c, "the file is too large for this answer; use download")
	case frame.CodeNoSpace:
		return problem(409, c, "the sandbox has no space left")
	case frame.CodeProcessLimit:
		return problem(409, c, "the sandbox runs as many processes as it may")
	case frame.CodeBusy:
		return problem(429, c, "too many operations at once in this sandbox").with("Retry-After", "1")
	case frame.CodeTimeout:
		return problem(504, c, "the sandbox did not answer in time")
	case frame.CodeUnavailable:
		return problem(503, c, "the sandbox can't be reached").with("Retry-After", "1")
	}
	return problem(502, "guest_failed", "the sandbox gave no sensible answer")
}

// refuseDocument names each wrong field of a policy document.
func refuseDocument(err error, sent []byte) *Problem {
	p := problem(http.StatusUnprocessableEntity, "invalid_policy", "the policy is not valid")
	clear := clearer(sent)
	if all, ok := errors.AsType[policies.Errors](err); ok {
		for _, e := range all {
			p.Errors = append(p.Errors, fieldOf(e, clear))
		}
	} else if e, ok := errors.AsType[*policies.FieldError](err); ok {
		p.Errors = append(p.Errors, fieldOf(e, clear))
	} else {
		p.Errors = append(p.Errors, FieldError{"body", clear(err.Error())})
	}
	return p
}

func fieldOf(e *policies.FieldError, clear func(string) string) FieldError {
	f := FieldError{Location: "body", Message: clear(e.Message)}
	if e.Path != "" {
		f.Location += "." + e.Path
	}
	if e.Hint != "" {
		f.Message += " (" + clear(e.Hint) + ")"
	}
	return f
}

// write sends a refusal from a plain handler.
func (s *Server) refuseTo(w http.ResponseWriter, r *http.Request, err error) {
	p := s.refusal(r.Context(), err)
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	json.NewEncoder(w).Encode(p)
}
