package self

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"portreeve.dev/egress"
)

const (
	maxBody  = 16 << 10
	bodyTime = 10 * time.Second // for the body of a request
	callTime = 10 * time.Second // for an answer of control's
	maxWait  = 30 * time.Second
)

// A Handler answers. It is an http.Handler.
type Handler struct {
	cfg    Config
	limits *limits
	mux    *http.ServeMux

	asked, refused atomic.Uint64
}

// New checks the configuration and starts nothing.
func New(cfg Config) (*Handler, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	h := &Handler{cfg: cfg, limits: newLimits(cfg.Limits), mux: http.NewServeMux()}
	for _, r := range routes {
		h.mux.HandleFunc(r.method+" "+r.pattern, func(w http.ResponseWriter, req *http.Request) {
			b, _ := h.cfg.Binding(req.Context()) // ServeHTTP saw it
			if err := r.serve(h, w, req, b); err != nil {
				h.writeError(w, err)
			}
		})
	}
	return h, nil
}

// Stats counts requests since the start, and those that were refused.
func (h *Handler) Stats() (asked, refused uint64) { return h.asked.Load(), h.refused.Load() }

// A route is one thing that may be asked.
type route struct {
	method, pattern string
	about           string
	serve           func(*Handler, http.ResponseWriter, *http.Request, egress.Binding) error
}

var routes []route

func init() { // the list of routes is in an answer of one of them
	routes = []route{
		{"GET", "/{$}", "this list", (*Handler).index},
		{"GET", "/reach", "what you may reach, in words", (*Handler).reach},
		{"POST", "/check", "would this be allowed? {\"url\"} or {\"host\", \"port\", \"protocol\", \"method\", \"path\"}", (*Handler).check},
		{"GET", "/denials", "what you were last denied, and why", (*Handler).denials},
		{"GET", "/decisions/{id}", "why one decision was what it was", (*Handler).decision},
		{"POST", "/requests", "ask a person for access: {\"host\", \"why\"}, or {\"decision_id\", \"why\"}; and \"port\", \"protocol\", \"methods\", \"paths\", \"width\": \"host\" or \"url\", \"for\": \"1h\"", (*Handler).ask},
		{"GET", "/requests/{id}", "how that stands; with Prefer: wait=30 the answer waits while somebody is there to decide", (*Handler).access},
		{"GET", "/services", "hosts for which a credential is put into your requests; send none of your own there", (*Handler).services},
		{"GET", "/ca.pem", "the certificates under which TLS is opened here", (*Handler).authority},
		{"GET", "/ca/{list}", "which certificates were taken back, as the certificates name it; this alone needs no header", (*Handler).revoked},
		{"POST", "/pause", "put yourself to sleep; a call through a tunnel wakes you", (*Handler).pause},
	}
}

// ServeHTTP is the one way in.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.asked.Add(1)
	b, ok := h.cfg.Binding(r.Context())
	if !ok || b.Sandbox == "" || b.Org == "" {
		h.writeError(w, refuse(http.StatusForbidden, "unbound", "this connection is no sandbox's"))
		return
	}
	if !h.limits.allow(b.Sandbox, h.cfg.Now()) {
		h.writeError(w, errBusy)
		return
	}
	if _, pattern := h.mux.Handler(r); pattern == "" {
		h.noRoute(w, r)
		return
	}
	h.mux.ServeHTTP(w, r)
}

// noRoute answers for the mux, which would do it in plain text.
func (h *Handler) noRoute(w http.ResponseWriter, r *http.Request) {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := h.mux.Handler(other); pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		h.writeError(w, refuse(http.StatusMethodNotAllowed, "method_not_allowed", "this takes "+strings.Join(allowed, " and ")))
		return
	}
	h.writeError(w, refuse(http.StatusNotFound, "not_found", "GET / lists what there is"))
}

// read decodes a JSON body strictly. Its refusals name the field, never what was in it.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTime))
	defer func() { _ = control.SetReadDeadline(time.Time{}) }()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return refuse(http.StatusRequestEntityTooLarge, "body_too_large", "the body is over 16 KiB")
	case err != nil:
		return refuse(http.StatusBadRequest, "bad_request", "the body could not be read to its end")
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return refuseJSON(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return refuse(http.StatusBadRequest, "bad_request", "the body is more than one JSON value")
	}
	return nil
}

func refuseJSON(err error) *problem {
	var t *json.UnmarshalTypeError
	if errors.As(err, &t) {
		return invalid(t.Field, "has the wrong type")
	}
	if _, name, ok := strings.Cut(err.Error(), "json: unknown field "); ok {
		return invalid(strings.Trim(name, `"`), "is no field of this")
	}
	return refuse(http.StatusBadRequest, "bad_request", "the body is not a JSON object")
}

func (h *Handler) index(w http.ResponseWriter, _ *http.Request, b egress.Binding) error {
	type line struct {
		Route string `json:"route"`
		About string `json:"about"`
	}
	out := struct {
		Sandbox string `json:"sandbox_id"`
		About   string `json:"about"`
		Routes  []line `json:"routes"`
	}{Sandbox: b.Sandbox, About: "What leaves this sandbox is judged outside of it. Send the header X-Portreeve-Self: 1 with each request to this host."}
	for _, r := range routes {
		out.Routes = append(out.Routes, line{r.method + " " + strings.TrimSuffix(r.pattern, "{$}"), r.about})
	}
	write(w, http.StatusOK, "application/json", out)
	return nil
}
