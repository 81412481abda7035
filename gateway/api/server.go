package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"uuid"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

// Prefixes under which every route is served.
var prefixes = []string{"/api/v1", "/api"}

const (
	maxBody  = 4<<20 + 1024 // of a JSON request: a policy document and what is around it
	maxFiles = 32 << 20     // of a request that writes files
	readTime = 30 * time.Second
)

// A Server answers the API. It is an http.Handler.
type Server struct {
	Config
	mux  *http.ServeMux
	huma huma.API
	spec []byte

	bodies    bodies // in memory
	looking   turn   // of questions about many decisions
	approvers *approvers
	testing   onceEach // of webhooks
}

var _ http.Handler = (*Server)(nil)

// New returns a server. It starts nothing.
func New(c Config) (*Server, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	clearHumaErrors()
	s := &Server{Config: c, mux: http.NewServeMux(), approvers: newApprovers()}
	s.huma = humago.New(prefixMux{s.mux}, s.humaConfig())
	s.routes()
	spec, err := json.Marshal(s.huma.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("writing the OpenAPI document: %w", err)
	}
	s.spec = spec
	return s, nil
}

// OpenAPI returns the document that /openapi.json serves.
func (s *Server) OpenAPI() []byte { return bytes.Clone(s.spec) }

func (s *Server) humaConfig() huma.Config {
	format := huma.Format{
		Marshal: func(w io.Writer, v any) error {
			e := json.NewEncoder(w)
			e.SetEscapeHTML(false)
			return e.Encode(v)
		},
		Unmarshal: func(data []byte, v any) error {
			// The decoder's own words may repeat a part of the body.
			if json.Unmarshal(data, v) != nil {
				return errors.New("is not valid JSON for this request")
			}
			return nil
		},
	}
	return huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{Title: "Portreeve", Version: s.Version,
				Description: "One door for code you do not trust: sandboxes, what may go out of them and why."},
			Servers: []*huma.Server{{URL: "/api/v1"}},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"key": {Type: "apiKey", In: "header", Name: "Authorization", Description: "ApiKey prk_…"},
				},
			},
		},
		Formats:                      map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	}
}

// prefixMux enters each pattern under every prefix.
type prefixMux struct{ *http.ServeMux }

func (m prefixMux) HandleFunc(pattern string, handler func(http.ResponseWriter, *http.Request)) {
	method, path, _ := strings.Cut(pattern, " ")
	for _, prefix := range prefixes {
		m.ServeMux.HandleFunc(method+" "+prefix+path, handler)
	}
}

// ServeHTTP is the one way in: request id, headers of every answer, credential, body, idempotency key, route.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r = r.WithContext(context.WithValue(r.Context(), requestKey{}, chooseRequestID(r)))
	h := w.Header()
	h.Set("X-Request-Id", requestID(r.Context()))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	defer hurryBody(w, r)
	defer s.recover(w, r)
	switch {
	case r.URL.Path == "/health" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		s.health(w, r)
	case r.URL.Path == "/openapi.json" && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		h.Set("Content-Type", "application/openapi+json")
		w.Write(s.spec)
	case strings.HasPrefix(r.URL.Path, "/ca/") && (r.Method == http.MethodGet || r.Method == http.MethodHead):
		s.revokedList(w, r)
	case strings.HasPrefix(r.URL.Path, "/api/"):
		s.serveAPI(w, r)
	default:
		s.refuseTo(w, r, notFound("route"))
	}
}

// bodyPatience is how long a client may take to send what nobody has read of its body.
const bodyPatience = 2 * time.Second

// hurryBody bounds what net/http does before it sends an answer: it reads what is left of the body, however long that takes.
func hurryBody(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor == 1 && r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyPatience))
	}
}

func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	handler, pattern := s.mux.Handler(r)
	if !isRegister(r) {
		c, err := s.authenticate(r)
		if err != nil {
			s.refuseTo(w, r, err)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
	}
	if pattern == "" || handler == nil {
		s.noRoute(w, r, handler)
		return
	}
	org := ""
	if c := callerOf(r.Context()); c != nil {
		org = c.org()
	}
	held, err := s.readBody(w, r, org)
	defer s.bodies.add(org, -held)
	if err != nil {
		s.refuseTo(w, r, err)
		return
	}
	s.idempotent(w, r, s.mux)
}

func isRegister(r *http.Request) bool {
	return r.Method == http.MethodPost && (r.URL.Path == "/api/v1/register" || r.URL.Path == "/api/register")
}

// noRoute answers for the mux, which would do it in plain text.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	probe := &headerOnly{header: http.Header{}}
	if handler != nil {
		handler.ServeHTTP(probe, r)
	}
	if probe.status == http.StatusMethodNotAllowed {
		s.refuseTo(w, r, problem(probe.status, "method_not_allowed", "this route does not take this method").with("Allow", probe.header.Get("Allow")))
		return
	}
	s.refuseTo(w, r, notFound("route"))
}

type headerOnly struct {
	header http.Header
	status int
}

func (h *headerOnly) Header() http.Header         { return h.header }
func (h *headerOnly) Write(p []byte) (int, error) { return len(p), nil }
func (h *headerOnly) WriteHeader(status int)      { h.status = status }

// readBody reads the whole body before anything acts on it. The deadline is taken off again: with it on, net/http would
// cancel a request that takes longer to answer than to send.
// It returns how much it counts as held for the org, also with an error.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request, org string) (held int64, err error) {
	if r.Body == nil || r.Body == http.NoBody {
		return 0, nil
	}
	limit := int64(maxBody)
	if strings.HasSuffix(r.URL.Path, "/files") || strings.HasSuffix(r.URL.Path, "/files/write") {
		limit = maxFiles
	}
	tooLarge := problem(http.StatusRequestEntityTooLarge, "body_too_large", fmt.Sprintf("the body is over %d bytes", limit), FieldError{"body", "is too large"})
	if r.ContentLength > limit {
		return 0, tooLarge
	}
	if held = r.ContentLength; held < 0 {
		held = limit
	}
	if !s.bodies.add(org, held) {
		return 0, problem(http.StatusTooManyRequests, "too_many_bodies", "the org's requests that are under way have too large bodies together").with("Retry-After", "1")
	}
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Now().Add(readTime))
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	control.SetReadDeadline(time.Time{})
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return held, tooLarge
		}
		return held, problem(http.StatusBadRequest, "bad_request", "the body could not be read to its end")
	}
	s.bodies.add(org, int64(len(body))-held) // less than was counted, so it fits
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Type", "application/json") // whatever curl -d says; policy documents find out themselves
	return int64(len(body)), nil
}

// maxBodies is how much of request bodies is in memory at a time, for one org: a key of whatever rights could else take all.
const maxBodies = 256 << 20

// bodies counts them.
type bodies struct {
	mu    sync.Mutex
	byOrg map[string]int64
}

// add counts n bytes more, or fewer; false, with nothing counted, when that is too much.
func (b *bodies) add(org string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.byOrg[org] + n
	switch {
	case n > 0 && now > maxBodies:
		return false
	case now == 0:
		delete(b.byOrg, org)
		return true
	case b.byOrg == nil:
		b.byOrg = make(map[string]int64)
	}
	b.byOrg[org] = now
	return true
}

// recover answers for a handler that broke an invariant of ours.
func (s *Server) recover(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler {
		panic(v)
	}
	s.Log.Error("handler panicked", "err", fmt.Sprint(v), "request_id", requestID(r.Context()), "stack", string(debug.Stack()))
	s.refuseTo(w, r, problem(http.StatusInternalServerError, "internal", "something went wrong here; the request id finds it in the log"))
}

type requestKey struct{}

// chooseRequestID takes a client's id if it has the form of a UUID, which can't be mistaken for anything of ours.
func chooseRequestID(r *http.Request) string {
	if sent := r.Header.Get("X-Request-Id"); len(sent) == 36 {
		if id, err := uuid.Parse(sent); err == nil {
			return id.String()
		}
	}
	return store.NewID("req")
}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestKey{}).(string)
	return id
}

type callerKey struct{}

// A caller is who makes a request.
type caller struct {
	store.By
	key store.Key
}

func (c *caller) org() string { return c.Principal.Org }

func callerOf(ctx context.Context) *caller {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c
}

// may returns who asks, or the refusal for one that lacks the scope.
func may(ctx context.Context, scope sso.Scope) (*caller, error) {
	c := callerOf(ctx)
	if c == nil {
		return nil, unauthorized("no credential")
	}
	if !c.Principal.Has(scope) {
		return nil, problem(http.StatusForbidden, "scope_missing", "the key lacks the scope "+string(scope))
	}
	return c, nil
}

func clientAddress(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// route registers a handler that wants a scope.
func route[I, O any](s *Server, scope sso.Scope, op huma.Operation, handle func(ctx context.Context, c *caller, in *I) (*O, error)) {
	s.describe(&op, scope)
	huma.Register(s.huma, op, func(ctx context.Context, in *I) (*O, error) {
		c, err := may(ctx, scope)
		if err != nil {
			return nil, s.refusal(ctx, err)
		}
		out, err := handle(ctx, c, in)
		if err != nil {
			return nil, s.refusal(ctx, err)
		}
		return out, nil
	})
}

// plain registers a handler that writes its answer itself. in and out, which may be nil, are only described.
func (s *Server) plain(scope sso.Scope, op huma.Operation, in, out *huma.MediaType, handle func(w http.ResponseWriter, r *http.Request, c *caller) error) {
	s.describe(&op, scope)
	if in != nil {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": in}}
	}
	ok := &huma.Response{Description: "OK"}
	if out != nil {
		ok.Content = map[string]*huma.MediaType{"application/json": out}
	}
	refused := s.huma.OpenAPI().Components.Schemas.Schema(typeOf[Problem](), true, "Problem")
	op.Responses = map[string]*huma.Response{
		"200":     ok,
		"default": {Description: "Error", Content: map[string]*huma.MediaType{"application/problem+json": {Schema: refused}}},
	}
	s.huma.OpenAPI().AddOperation(&op)
	prefixMux{s.mux}.HandleFunc(op.Method+" "+op.Path, func(w http.ResponseWriter, r *http.Request) {
		c, err := may(r.Context(), scope)
		if err == nil {
			err = handle(w, r, c)
		}
		if err != nil {
			s.refuseTo(w, r, err)
		}
	})
}

func (s *Server) describe(op *huma.Operation, scope sso.Scope) {
	op.Security = []map[string][]string{{"key": {}}}
	op.Description = strings.TrimSpace(op.Description + "\n\nScope: " + string(scope) + ".")
	op.MaxBodyBytes = maxBody + 1 // readBody has bounded it
	op.BodyReadTimeout = -1
	op.Metadata = map[string]any{"scope": scope}
}
