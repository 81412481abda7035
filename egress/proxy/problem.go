package proxy

import (
	"encoding/json"
	"net/http"
	"strconv"

	"portreeve.dev/policies"
)

// HeaderDecision carries the id of the decision in every answer that is ours.
const HeaderDecision = "Portreeve-Decision"

// A problem is the body of a refusal (RFC 9457), made to be read by an agent as well as by a person.
type problem struct {
	Type        string `json:"type"`
	Title       string `json:"title"`
	Status      int    `json:"status"`
	Code        string `json:"code"`
	Decision    string `json:"decision_id,omitempty"`
	Rule        string `json:"rule,omitempty"`
	Reason      string `json:"reason"`
	Guidance    string `json:"agent_guidance"`
	Version     int64  `json:"policy_version"`
	Retryable   bool   `json:"retryable"`
	Requestable bool   `json:"requestable"`
	RequestURL  string `json:"request_url,omitempty"` // where access may be asked for
	Destination string `json:"destination"`
}

// statusOf is the HTTP status of a refusal: 403, but where the fault is the request's form or ours.
func statusOf(r policies.Reason) int {
	switch r {
	case policies.ReasonParse, policies.ReasonHostInvalid:
		return http.StatusBadRequest
	case policies.ReasonHeadTooLarge:
		return http.StatusRequestHeaderFieldsTooLarge
	case policies.ReasonBudget:
		return http.StatusTooManyRequests
	case policies.ReasonNoPolicy, policies.ReasonStalePolicy, policies.ReasonRecordFailed, policies.ReasonSecretUnavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusForbidden
}

// retryable reports whether the same request may succeed later without anybody changing a rule.
func retryable(status int) bool { return status == http.StatusTooManyRequests || status >= 500 }

// writeProblem answers with a refusal, the last one on its connection if closing. Whatever header was set before is gone.
func writeProblem(w http.ResponseWriter, closing bool, p problem) {
	p.Type = "https://portreeve.dev/problems/" + p.Code
	p.Retryable = retryable(p.Status)
	body, err := json.Marshal(p)
	if err != nil {
		panic(err) // strings, numbers and booleans
	}
	h := w.Header()
	clear(h)
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	if closing {
		h.Set("Connection", "close")
	}
	if p.Decision != "" {
		h.Set(HeaderDecision, p.Decision)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // a client that has left is its own answer
}
