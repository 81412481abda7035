package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/authorities"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/sandboxes"
	"portreeve.dev/ingress/route"
	"portreeve.dev/policies"
	"portreeve.dev/secrets/seal"
	"portreeve.dev/sso"
)

// longest is how long an answer may take: one that has no end fails its test.
const longest = 20 * time.Second

// What the world is set up with.
const (
	SetupToken   = "setup-token-of-the-start-screen"
	TunnelDomain = "tunnel.localhost" // on port 8443, and in clear too
)

// A World is an API behind a real listener, with everything that it needs.
type World struct {
	T         testing.TB
	Store     *store.Store
	Keyring   *seal.Keyring
	Runner    *Runner
	Guest     *Guest
	Feed      *Feed // of policies
	Routes    *Feed // of tunnels: only waiting is asked of it
	Sandboxes *sandboxes.Service

	Authorities *authorities.Service
	API         *api.Server
	URL         string // ends in /api/v1
	Log         *Log
}

// New builds a world. change may adjust the configuration.
func New(t testing.TB, change ...func(*api.Config)) *World {
	t.Helper()
	st, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), store.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { st.Close() })
	w := &World{T: t, Store: st, Runner: NewRunner(), Guest: &Guest{Root: t.TempDir()}, Feed: &Feed{}, Routes: &Feed{}, Log: &Log{}}
	log := slog.New(slog.NewTextHandler(w.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	w.Sandboxes, err = sandboxes.New(sandboxes.Config{Store: st, Runner: w.Runner, Guest: w.Guest, Feed: w.Feed, Sockets: sockets{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	floor, err := policies.NewFloor(policies.FloorConfig{})
	if err != nil {
		t.Fatal(err)
	}
	keyring, err := seal.Create(filepath.Join(t.TempDir(), "master.key"))
	if err != nil {
		t.Fatal(err)
	}
	zone, err := route.NewZone(TunnelDomain)
	if err != nil {
		t.Fatal(err)
	}
	w.Keyring = keyring
	if w.Authorities, err = authorities.New(authorities.Config{Store: st, Keyring: keyring, Node: trusting{}, Log: log}); err != nil {
		t.Fatal(err)
	}
	c := api.Config{Store: st, Keyring: keyring, Sandboxes: w.Sandboxes, Guest: w.Guest, Feed: w.Feed, Floor: floor, SetupToken: sso.NewSecret(SetupToken), Version: "test", Log: log, Authorities: w.Authorities,
		Tunnels: api.Tunnels{Zone: zone, Port: "8443", Plain: true, Routed: w.Routes.WaitApplied}}
	for _, f := range change {
		f(&c)
	}
	if w.API, err = api.New(c); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(w.API)
	t.Cleanup(server.Close)
	w.URL = server.URL + "/api/v1"
	return w
}

// A Client calls the API with one key.
type Client struct {
	w   *World
	Org string
	Key string
	// Header is added to each request.
	Header http.Header
}

// Org makes an org and returns a client with its owner's key.
func (w *World) Org(name string) *Client {
	w.T.Helper()
	return w.bootstrap(name, sso.Scopes())
}

// Installer is Org for the one whose key may change what holds for every org.
func (w *World) Installer(name string) *Client {
	w.T.Helper()
	return w.bootstrap(name, sso.AllScopes())
}

func (w *World) bootstrap(name string, scopes []sso.Scope) *Client {
	w.T.Helper()
	id, key, err := w.API.Bootstrap(context.Background(), name, name+"@example.com", scopes)
	if err != nil {
		w.T.Fatal(err)
	}
	return &Client{w: w, Org: id, Key: key.Reveal(), Header: http.Header{}}
}

// With returns a client with another key of the same org, made with these rights.
func (c *Client) With(scopes []string, policies ...string) *Client {
	c.w.T.Helper()
	a := c.Do("POST", "/api-keys", map[string]any{"name": "made", "scopes": scopes, "policies": policies})
	a.Want(201)
	return &Client{w: c.w, Org: c.Org, Key: a.String("key"), Header: http.Header{}}
}

// An Answer is a response whose body was read.
type Answer struct {
	w      *World
	what   string
	Status int
	Header http.Header
	Body   []byte
}

// Send makes a request with any body and any headers; "" as the key sends none.
func (w *World) Send(method, url, key string, body []byte, header http.Header) *Answer {
	w.T.Helper()
	ctx, cancel := context.WithTimeout(w.T.Context(), longest)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		w.T.Fatal(err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	if key != "" {
		req.Header.Set("Authorization", "ApiKey "+key)
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		w.T.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		w.T.Fatal(err)
	}
	return &Answer{w: w, what: method + " " + strings.TrimPrefix(url, w.URL), Status: resp.StatusCode, Header: resp.Header, Body: data}
}

// Do makes a request; body is a string to be sent as it is, or is marshalled. nil sends none.
func (c *Client) Do(method, path string, body any) *Answer {
	c.w.T.Helper()
	var data []byte
	switch b := body.(type) {
	case nil:
	case string:
		data = []byte(b)
	case []byte:
		data = b
	default:
		var err error
		if data, err = json.Marshal(b); err != nil {
			c.w.T.Fatal(err)
		}
	}
	header := c.Header.Clone()
	if data != nil {
		header.Set("Content-Type", "application/json")
	}
	return c.w.Send(method, c.w.URL+path, c.Key, data, header)
}

// Also returns the client with one more header.
func (c *Client) Also(name, value string) *Client {
	other := *c
	other.Header = c.Header.Clone()
	other.Header.Set(name, value)
	return &other
}

// Sandbox makes a sandbox and returns its id.
func (c *Client) Sandbox(more ...map[string]any) string {
	c.w.T.Helper()
	body := map[string]any{"template": "tiny"}
	for _, m := range more {
		for k, v := range m {
			body[k] = v
		}
	}
	a := c.Do("POST", "/sandbox/create", body)
	a.Want(201)
	return a.String("sandbox_id")
}

// Want fails the test if the status is another.
func (a *Answer) Want(status int) *Answer {
	a.w.T.Helper()
	if a.Status != status {
		a.w.T.Fatalf("%s: status %d, want %d: %s", a.what, a.Status, status, a.shown())
	}
	return a
}

// Refused fails the test if the answer is not a problem with this status and code. location, if given, must be among its errors.
func (a *Answer) Refused(status int, code string, location ...string) *Answer {
	a.w.T.Helper()
	var p api.Problem
	if err := json.Unmarshal(a.Body, &p); err != nil || a.Header.Get("Content-Type") != "application/problem+json" {
		a.w.T.Errorf("%s: not a problem answer: %d %s: %s", a.what, a.Status, a.Header.Get("Content-Type"), a.shown())
		return a
	}
	if a.Status != status || p.Status != status || p.Code != code {
		a.w.T.Errorf("%s: %d %s, want %d %s: %s", a.what, a.Status, p.Code, status, code, a.shown())
	}
	if p.RequestID == "" || p.RequestID != a.Header.Get("X-Request-Id") {
		a.w.T.Errorf("%s: request id %q in the body, %q in the header", a.what, p.RequestID, a.Header.Get("X-Request-Id"))
	}
	for _, want := range location {
		found := false
		for _, e := range p.Errors {
			found = found || e.Location == want
		}
		if !found {
			a.w.T.Errorf("%s: the problem does not name %s: %s", a.what, want, a.shown())
		}
	}
	return a
}

// shown is as much of the body as helps the reader of a failure.
func (a *Answer) shown() []byte { return a.Body[:min(len(a.Body), 2000)] }

// JSON decodes the body.
func (a *Answer) JSON(v any) *Answer {
	a.w.T.Helper()
	if err := json.Unmarshal(a.Body, v); err != nil {
		a.w.T.Fatalf("%s: %v: %s", a.what, err, a.shown())
	}
	return a
}

// At returns what is at a dotted path of the body: "a.b.0.c"; nil if nothing is.
func (a *Answer) At(path string) any {
	a.w.T.Helper()
	var v any
	a.JSON(&v)
	for part := range strings.SplitSeq(path, ".") {
		switch at := v.(type) {
		case map[string]any:
			v = at[part]
		case []any:
			if len(part) != 1 || int(part[0]-'0') >= len(at) {
				return nil
			}
			v = at[part[0]-'0']
		default:
			return nil
		}
	}
	return v
}

// String is At for a string.
func (a *Answer) String(path string) string {
	s, _ := a.At(path).(string)
	return s
}

// A Log keeps what was logged.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
