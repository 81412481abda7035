package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// A Problem is a refusal by the API (RFC 9457).
type Problem struct {
	Status    int     `json:"status"`
	Title     string  `json:"title"`
	Detail    string  `json:"detail"`
	Code      string  `json:"code"`
	RequestID string  `json:"request_id"`
	Errors    []Field `json:"errors"`
}

// A Field is one wrong part of a request.
type Field struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Error says what the API said, with the word that programs tell it by, and for a failure of the API's own the id that finds
// it in the log. Of wrong parts of a request each is named instead.
func (p *Problem) Error() string {
	text := p.Detail
	if text == "" {
		text = p.Title
	}
	if p.Code != "" && len(p.Errors) == 0 {
		text += ": " + p.Code
	}
	if p.Status >= http.StatusInternalServerError && p.RequestID != "" {
		text += " (" + p.RequestID + ")"
	}
	for _, f := range p.Errors {
		text += fmt.Sprintf("\n  %s: %s", strings.TrimPrefix(f.Location, "body."), f.Message)
	}
	return text
}

// A Hinted error knows the way out.
type Hinted struct {
	Err  error
	Hint string
}

func (h *Hinted) Error() string { return h.Err.Error() }
func (h *Hinted) Unwrap() error { return h.Err }

func problem(resp *http.Response) error {
	p := &Problem{Status: resp.StatusCode, Title: http.StatusText(resp.StatusCode)}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && strings.Contains(resp.Header.Get("Content-Type"), "json") {
		json.Unmarshal(data, p) // what isn't there stays as the status says
	}
	p.Status = resp.StatusCode
	return p
}
