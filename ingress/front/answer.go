package front

import (
	"encoding/json"
	"html/template"
	"net/http"
	"strconv"
	"time"
)

// CodeHeader marks an answer as ours, by its code. Apps can't set it.
const CodeHeader = "X-Portreeve-Code"

// A Problem is an answer of our own that is no success. Nothing in it comes from a client.
type Problem struct {
	Status     int
	Code       string // a stable word
	Detail     string // one clause
	RetryAfter time.Duration
	GRPC       int           // the status for gRPC; 0 derives it from Status
	Reload     time.Duration // the page loads itself again after this
}

// Codes of gRPC.
const (
	grpcDeadline    = 4
	grpcNotFound    = 5
	grpcDenied      = 7
	GRPCExhausted   = 8
	grpcInternal    = 13
	grpcUnavailable = 14
	grpcUnknownUser = 16
)

// Answer writes p in the form that suits the client.
func Answer(w http.ResponseWriter, r *http.Request, p Problem) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set(CodeHeader, p.Code)
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	}
	switch KindOf(r) {
	case GRPC:
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", strconv.Itoa(p.grpc()))
		h.Set("Grpc-Message", p.Code+": "+p.Detail)
		w.WriteHeader(http.StatusOK)
	case Navigation:
		h.Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(p.Status)
		_ = page.Execute(w, struct {
			Problem
			Title   string
			Seconds int
		}{p, title(p.Status), int((p.Reload + time.Second - 1) / time.Second)})
	default:
		h.Set("Content-Type", "application/problem+json")
		w.WriteHeader(p.Status)
		_ = json.NewEncoder(w).Encode(struct {
			Type   string `json:"type"`
			Title  string `json:"title"`
			Status int    `json:"status"`
			Code   string `json:"code"`
			Detail string `json:"detail"`
		}{"https://portreeve.dev/problems/" + p.Code, title(p.Status), p.Status, p.Code, p.Detail})
	}
}

func title(status int) string {
	if t := http.StatusText(status); t != "" {
		return t
	}
	return "Error"
}

func (p *Problem) grpc() int {
	switch {
	case p.GRPC != 0:
		return p.GRPC
	case p.Status == http.StatusUnauthorized:
		return grpcUnknownUser
	case p.Status == http.StatusForbidden:
		return grpcDenied
	case p.Status == http.StatusNotFound, p.Status == http.StatusGone:
		return grpcNotFound
	case p.Status == http.StatusGatewayTimeout:
		return grpcDeadline
	case p.Status >= 500:
		return grpcUnavailable
	}
	return grpcInternal
}

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="robots" content="noindex">
{{- if .Seconds}}
<meta http-equiv="refresh" content="{{.Seconds}}">
{{- end}}
<title>{{.Title}}</title>
<style>
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 34rem; margin: 20vh auto; padding: 0 1rem }
h1 { font-size: 1.25rem }
p { opacity: .8 }
</style>
<h1>{{if .Seconds}}Waking up{{else}}{{.Title}}{{end}}</h1>
<p>{{.Detail}}.{{if .Seconds}} This page loads itself again.{{end}}</p>
<p><small>{{.Status}} {{.Code}} · Portreeve</small></p>
</html>
`))
