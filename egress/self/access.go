package self

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"portreeve.dev/egress"
)

// What an ask may hold. Control looks closer.
const (
	maxWhy   = 500
	maxHost  = 300
	maxList  = 16
	maxPath  = 1024
	maxShort = 40
)

// An askBody is an Ask, or the decision that it is about.
type askBody struct {
	Ask
	Decision string `json:"decision_id"`
	Method   string `json:"method"` // the same as one of methods
	Path     string `json:"path"`
}

func (h *Handler) ask(w http.ResponseWriter, r *http.Request, b egress.Binding) error {
	wait, err := waitOf(r)
	if err != nil {
		return err
	}
	var body askBody
	if err := read(w, r, &body); err != nil {
		return err
	}
	if !h.limits.ask(b.Sandbox, h.cfg.Now()) {
		return errBusy
	}
	if err := h.complete(r.Context(), b, &body); err != nil {
		return err
	}
	a, err := h.enter(r.Context(), b, body.Ask)
	if err != nil {
		return err
	}
	if wait > 0 && a.State == "open" && a.Approver {
		if later, err := h.await(r.Context(), b, a.ID, wait); err == nil {
			a = later
		} // else it is entered all the same, and may be asked for
	}
	w.Header().Set("Location", RequestURL+"/"+a.ID)
	write(w, http.StatusCreated, "application/json", told(a))
	return nil
}

func (h *Handler) enter(ctx context.Context, b egress.Binding, a Ask) (Access, error) {
	free := h.limits.call(b)
	if free == nil {
		return Access{}, errBusy
	}
	defer free()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return h.cfg.Control.Ask(ctx, b, a)
}

// complete fills in what a denied decision already says, and bounds the rest.
func (h *Handler) complete(ctx context.Context, b egress.Binding, body *askBody) error {
	a := &body.Ask
	if body.Decision != "" {
		if a.Host != "" {
			return invalid("decision_id", "and host are both given")
		}
		d, err := h.find(ctx, b, body.Decision)
		if err != nil {
			return err
		}
		if !requestable(d) {
			return refuse(http.StatusConflict, "not_requestable", "only what no rule allows may be asked for; this was decided otherwise")
		}
		a.Host = d.Host
		if d.Layer != "dns" {
			a.Port, a.Protocol = d.Port, firstOf(d.Protocol, a.Protocol)
		}
		if a.Width == egress.WidthURL && len(a.Methods)+len(a.Paths) == 0 && d.Layer == "http" && d.Path != "" {
			a.Methods, a.Paths = []string{d.Method}, []string{d.Path}
		}
	}
	if body.Method != "" {
		a.Methods = append(a.Methods, body.Method)
	}
	if body.Path != "" {
		a.Paths = append(a.Paths, body.Path)
	}
	return bounded(a)
}

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func bounded(a *Ask) error {
	switch {
	case a.Host == "":
		return invalid("host", "is missing; give a host, or the decision_id of a denial")
	case len(a.Host) > maxHost:
		return invalid("host", "is too long")
	case strings.TrimSpace(a.Why) == "":
		return invalid("why", "is missing; say in a sentence what the access is for: a person reads it")
	case len(a.Why) > maxWhy || !utf8.ValidString(a.Why):
		return invalid("why", "is over 500 bytes, or no text")
	case len(a.Protocol) > maxShort:
		return invalid("protocol", "is too long")
	case len(a.Width) > maxShort:
		return invalid("width", "is too long")
	case len(a.For) > maxShort:
		return invalid("for", "is too long")
	case len(a.Methods) > maxList:
		return invalid("methods", "are more than 16")
	case len(a.Paths) > maxList:
		return invalid("paths", "are more than 16")
	}
	for _, m := range a.Methods {
		if len(m) > maxShort {
			return invalid("methods", "hold one that is too long")
		}
	}
	for _, p := range a.Paths {
		if len(p) > maxPath {
			return invalid("paths", "hold one that is over 1024 bytes")
		}
	}
	return nil
}

func (h *Handler) access(w http.ResponseWriter, r *http.Request, b egress.Binding) error {
	wait, err := waitOf(r)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	if !strings.HasPrefix(id, "req_") || len(id) > 64 {
		return refuse(http.StatusNotFound, "request_not_found", "there is no such request of this sandbox")
	}
	a, err := h.await(r.Context(), b, id, wait)
	if err != nil {
		return err
	}
	write(w, http.StatusOK, "application/json", told(a))
	return nil
}

// await asks control how a request stands, and lets it wait if there is a place for one more that waits.
func (h *Handler) await(ctx context.Context, b egress.Binding, id string, wait time.Duration) (Access, error) {
	free := h.limits.call
	if wait > 0 {
		free = h.limits.wait
	}
	done := free(b)
	if done == nil {
		return Access{}, errBusy
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, wait+callTime)
	defer cancel()
	return h.cfg.Control.Access(ctx, b, id, wait)
}

// waitOf reads Prefer: wait=N (RFC 7240), or ?wait=N, in seconds. More than may be is as much as may be.
func waitOf(r *http.Request) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	for _, line := range r.Header.Values("Prefer") {
		for p := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.TrimSpace(p), "=")
			if strings.EqualFold(strings.TrimSpace(name), "wait") && text == "" {
				text = strings.Trim(strings.TrimSpace(value), `"`)
			}
		}
	}
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, invalid("wait", "is no number of seconds")
	}
	return min(time.Duration(n)*time.Second, maxWait), nil
}

// An accessView is an Access with what to do next.
type accessView struct {
	Access
	Next string `json:"agent_guidance"`
}

func told(a Access) accessView {
	next := ""
	switch {
	case a.State == "approved":
		next = "Access is given until expires_at; try again what was denied, with a new lookup of the name."
	case a.State == "denied":
		next = "A person refused; do without this destination and do not ask again for it."
	case a.State == "expired":
		next = "The time of this request is over; ask again if you still need it."
	case a.Approver:
		next = "Somebody is there to decide: GET this request with the header Prefer: wait=30."
	default:
		next = "Nobody is there to decide at the moment: go on with something else and look again in some minutes."
	}
	return accessView{a, next}
}
