package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"portreeve.dev/gateway/internal/store"
)

const keepAnswers = 24 * time.Hour

// headers of an answer that are part of what was answered.
var keptHeaders = []string{"Content-Type", "Etag", "Location"}

// kindOf says whether a route takes an Idempotency-Key, and whether its answer holds a value that is shown once.
func kindOf(r *http.Request) (takes, once bool) {
	if r.Method != http.MethodPost {
		return false, false
	}
	path := r.URL.Path
	for _, prefix := range prefixes {
		if rest, ok := strings.CutPrefix(path, prefix+"/"); ok {
			path = rest
			break
		}
	}
	switch {
	case path == "sandbox/create", path == "allow", path == "platform/floor-exemptions":
		return true, false
	case path == "api-keys", path == "webhooks", strings.HasPrefix(path, "api-keys/"), strings.HasPrefix(path, "sandbox/") && strings.HasSuffix(path, "/tunnels"):
		return true, true
	}
	return false, false
}

// idempotent answers a repeated request with its first answer, if the client gave it a key.
func (s *Server) idempotent(w http.ResponseWriter, r *http.Request, next http.Handler) {
	key := r.Header.Get("Idempotency-Key")
	takes, once := kindOf(r)
	c := callerOf(r.Context())
	if key == "" || !takes || c == nil {
		next.ServeHTTP(w, r)
		return
	}
	if len(key) > 255 {
		s.refuseTo(w, r, invalid("header.Idempotency-Key", "is longer than 255 bytes"))
		return
	}
	body, _ := io.ReadAll(r.Body) // in memory already
	r.Body = io.NopCloser(bytes.NewReader(body))
	sum := sha256.New()
	for _, part := range []string{r.Method, r.URL.Path, r.URL.RawQuery, c.Principal.ID, string(body)} {
		json.NewEncoder(sum).Encode(part)
	}
	first, err := s.Store.Begin(r.Context(), c.org(), key, sum.Sum(nil), keepAnswers)
	switch {
	case errors.Is(err, store.ErrInProgress):
		s.refuseTo(w, r, problem(http.StatusConflict, "in_progress", "the first request with this idempotency key is being worked on").with("Retry-After", "1"))
	case errors.Is(err, store.ErrOtherRequest):
		s.refuseTo(w, r, problem(http.StatusUnprocessableEntity, "idempotency_key_reused", "the idempotency key was used for another request",
			FieldError{"header.Idempotency-Key", "was used for another request"}))
	case err != nil:
		s.refuseTo(w, r, err)
	case first != nil && once:
		s.refuseTo(w, r, problem(http.StatusConflict, "shown_once", "this was done, and its answer held a value that is shown only once"))
	case first != nil:
		replay(w, first)
	default:
		s.answerFirst(w, r, next, c.org(), key, once)
	}
}

// answerFirst does the work and keeps a good answer. After any other the key is free again: nothing was done.
func (s *Server) answerFirst(w http.ResponseWriter, r *http.Request, next http.Handler, org, key string, once bool) {
	ctx := context.WithoutCancel(r.Context())
	rec := &recorder{ResponseWriter: w}
	done := false
	defer func() {
		if !done {
			if err := s.Store.Abandon(ctx, org, key); err != nil {
				s.Log.Error("giving back an idempotency key", "err", err)
			}
		}
	}()
	next.ServeHTTP(rec, r)
	if rec.status < 200 || rec.status > 299 {
		return
	}
	m := store.Remembered{Status: rec.status, Header: "{}"}
	if !once {
		kept := map[string]string{}
		for _, name := range keptHeaders {
			if v := w.Header().Get(name); v != "" {
				kept[name] = v
			}
		}
		text, _ := json.Marshal(kept)
		m.Header, m.Body = string(text), rec.body.Bytes()
	}
	done = true // even if keeping it fails: the work was done, and must not be done again
	if err := s.Store.Finish(ctx, org, key, m); err != nil {
		s.Log.Error("keeping an answer", "err", err)
	}
}

func replay(w http.ResponseWriter, m *store.Remembered) {
	kept := map[string]string{}
	json.Unmarshal([]byte(m.Header), &kept)
	for name, value := range kept {
		w.Header().Set(name, value)
	}
	w.Header().Set("Idempotent-Replayed", "true")
	w.WriteHeader(m.Status)
	w.Write(m.Body)
}

// recorder passes an answer on and keeps a copy.
type recorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	r.body.Write(p)
	return r.ResponseWriter.Write(p)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
