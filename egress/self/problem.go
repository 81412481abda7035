package self

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
)

// A problem is a refusal (RFC 9457).
type problem struct {
	Type      string `json:"type"`
	Title     string `json:"title"`
	Status    int    `json:"status"`
	Code      string `json:"code"`
	Detail    string `json:"detail,omitempty"`
	Field     string `json:"field,omitempty"` // of the body, that is at fault
	Retryable bool   `json:"retryable"`
	after     int    // seconds
}

func (p *problem) Error() string { return p.Code }

func refuse(status int, code, detail string) *problem {
	return &problem{Type: "https://portreeve.dev/problems/" + code, Title: http.StatusText(status), Status: status, Code: code, Detail: detail,
		Retryable: status == http.StatusTooManyRequests || status >= 500}
}

// invalid names the field that is at fault and never repeats its value.
func invalid(field, detail string) *problem {
	p := refuse(http.StatusUnprocessableEntity, "invalid_request", field+" "+detail)
	p.Field = field
	return p
}

func (p *problem) later(seconds int) *problem {
	p.after = seconds
	return p
}

var (
	errStale   = refuse(http.StatusServiceUnavailable, "stale_policy", "there is no fresh policy at the moment; everything is closed until there is").later(2)
	errControl = refuse(http.StatusServiceUnavailable, "control_away", "the part that keeps requests is being started again").later(2)
	errBusy    = refuse(http.StatusTooManyRequests, "too_many_requests", "slow down, or wait for the answers that are due").later(1)
)

// writeError answers with what the caller may know of an error.
func (h *Handler) writeError(w http.ResponseWriter, err error) {
	var p *problem
	var r *Refusal
	switch {
	case errors.As(err, &p):
	case errors.As(err, &r) && r.Status >= 400 && r.Status < 500:
		p = refuse(r.Status, r.Code, r.Detail)
	default:
		h.cfg.Log.Warn("a question of a sandbox could not be passed on", "err", err)
		p = errControl
	}
	h.refused.Add(1)
	if p.after > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.after))
	}
	write(w, p.Status, "application/problem+json", p)
}

// write answers with JSON. Nothing in it is HTML's business.
func write(w http.ResponseWriter, status int, kind string, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // strings, numbers, booleans and times
	}
	writeBytes(w, status, kind, append(body, '\n'))
}

func writeBytes(w http.ResponseWriter, status int, kind string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", kind)
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body) // a client that has left is its own answer
}
