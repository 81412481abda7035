package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"portreeve.dev/gateway/internal/store"
)

const streamPage = 200

// An eventWriter sends server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// writeTime is how long a client may take to read one event before its stream ends.
const writeTime = 30 * time.Second

func startEvents(w http.ResponseWriter) *eventWriter {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	e := &eventWriter{w, http.NewResponseController(w)}
	e.control.Flush()
	return e
}

func (e *eventWriter) send(text string) error {
	e.control.SetWriteDeadline(time.Now().Add(writeTime))
	if _, err := e.w.Write([]byte(text)); err != nil {
		return err
	}
	return e.control.Flush()
}

// data sends one event with a JSON value. id may be empty.
func (e *eventWriter) data(id string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if id != "" {
		return e.send("id: " + id + "\ndata: " + string(text) + "\n\n")
	}
	return e.send("data: " + string(text) + "\n\n")
}

// followDecisions sends each decision as it arrives. The store numbers them in commit order, so none is missed.
func (s *Server) followDecisions(w http.ResponseWriter, r *http.Request, c *caller) error {
	q := r.URL.Query()
	for name := range q {
		if name != "sandbox_id" && name != "verdict" && name != "host" {
			return invalid("query."+name, "unknown query parameter")
		}
	}
	wanted := store.DecisionFilter{Sandbox: q.Get("sandbox_id"), Verdict: q.Get("verdict"), Host: strings.ToLower(q.Get("host"))}
	if wanted.Sandbox != "" {
		if _, err := s.sandbox(r.Context(), c, wanted.Sandbox); err != nil {
			return err
		}
	}
	last, err := s.startAfter(r)
	if err != nil {
		return err
	}
	events := startEvents(w)
	beat := time.NewTicker(s.Heartbeat)
	defer beat.Stop()
	for {
		more := s.Store.Appended() // before reading: what comes after it wakes us
		if last, err = s.sendAfter(r, c, events, wanted, last); err != nil {
			return nil // the head is out; the client sees the stream end
		}
		select {
		case <-more:
		case <-beat.C:
			if !s.stillGood(r, c) || events.send(": heartbeat\n\n") != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		}
	}
}

func (s *Server) startAfter(r *http.Request) (int64, error) {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		n, err := strconv.ParseInt(id, 10, 64)
		if err != nil || n < 0 {
			return 0, invalid("header.Last-Event-ID", "is not an id of this stream")
		}
		return n, nil
	}
	return s.Store.LastDecision(r.Context())
}

func (s *Server) sendAfter(r *http.Request, c *caller, events *eventWriter, wanted store.DecisionFilter, last int64) (int64, error) {
	for {
		page, err := s.Store.DecisionsAfter(r.Context(), c.org(), last, streamPage)
		if err != nil {
			return last, err
		}
		for _, d := range page {
			last = d.Seq
			if wanted.Sandbox != "" && d.Sandbox != wanted.Sandbox || wanted.Verdict != "" && d.Verdict != wanted.Verdict || wanted.Host != "" && d.Host != wanted.Host {
				continue
			}
			if err := events.data(fmt.Sprint(d.Seq), d.Decision); err != nil {
				return last, err
			}
		}
		if len(page) < streamPage {
			return last, nil
		}
	}
}
