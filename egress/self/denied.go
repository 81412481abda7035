package self

import (
	"context"
	"net/http"
	"strings"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/policies"
)

// A denial is a decision as its own sandbox may see it: without the policy's name and what it says about others.
type denial struct {
	ID          string    `json:"decision_id"`
	Time        time.Time `json:"time"`            // of the first, if there are several
	Count       uint64    `json:"count,omitempty"` // how many equal ones it stands for; 0 is one
	Until       time.Time `json:"until,omitzero"`  // of the last of them, whose method and path stand here
	Verdict     string    `json:"verdict"`
	Layer       string    `json:"layer"` // dns, connect, http
	Destination string    `json:"destination"`
	Host        string    `json:"host,omitempty"`
	Port        uint16    `json:"port,omitempty"`
	Protocol    string    `json:"protocol,omitempty"`
	Method      string    `json:"method,omitempty"`
	Path        string    `json:"path,omitempty"`
	Reason      string    `json:"reason"`
	Rule        string    `json:"rule,omitempty"`
	Guidance    string    `json:"agent_guidance,omitempty"`
	Requestable bool      `json:"requestable"`
	RequestURL  string    `json:"request_url,omitempty"`
}

// RequestURL is where access is asked for.
const RequestURL = "http://portreeve.internal/requests"

func view(d decisions.Decision) denial {
	v := denial{ID: d.ID, Time: d.Time, Count: d.Count, Until: d.Until, Verdict: d.Verdict, Layer: d.Layer, Destination: destination(d.Host, d.Addr, d.Port), Host: d.Host, Port: d.Port,
		Protocol: d.Protocol, Method: d.Method, Path: d.Path, Reason: d.Reason, Rule: d.Rule, Guidance: d.Guidance, Requestable: requestable(d)}
	if v.Guidance == "" && d.Verdict != policies.Allow.String() {
		v.Guidance = policies.Reason(d.Reason).Guidance()
	}
	if v.Requestable {
		v.RequestURL = RequestURL
	}
	return v
}

func requestable(d decisions.Decision) bool {
	return d.Verdict == policies.Deny.String() && policies.Requestable(policies.Reason(d.Reason), d.Host)
}

func (h *Handler) denials(w http.ResponseWriter, _ *http.Request, b egress.Binding) error {
	out := struct {
		Denials []denial `json:"denials"`
	}{Denials: []denial{}}
	for _, d := range h.cfg.Denials.Of(b.Sandbox, b.Incarnation) {
		out.Denials = append(out.Denials, view(d))
	}
	write(w, http.StatusOK, "application/json", out)
	return nil
}

func (h *Handler) decision(w http.ResponseWriter, r *http.Request, b egress.Binding) error {
	d, err := h.find(r.Context(), b, r.PathValue("id"))
	if err != nil {
		return err
	}
	write(w, http.StatusOK, "application/json", view(d))
	return nil
}

// find returns a decision of this sandbox: from memory, else from control.
func (h *Handler) find(ctx context.Context, b egress.Binding, id string) (decisions.Decision, error) {
	if d, ok := h.cfg.Denials.Find(b.Sandbox, b.Incarnation, id); ok {
		return d, nil
	}
	unknown := refuse(http.StatusNotFound, "decision_not_found", "there is no such decision of this sandbox")
	if !strings.HasPrefix(id, "dec_") || len(id) > 64 {
		return decisions.Decision{}, unknown
	}
	free := h.limits.call(b)
	if free == nil {
		return decisions.Decision{}, errBusy
	}
	defer free()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	d, err := h.cfg.Control.Decision(ctx, b, id)
	if err == nil && (d.Sandbox != b.Sandbox || d.Org != b.Org || d.Incarnation != b.Incarnation) {
		return decisions.Decision{}, unknown // whatever control found, it is another's
	}
	return d, err
}
