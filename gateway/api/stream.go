package api

import (
	"encoding/json"
	"net/http"
	"time"
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

// named sends an event of a kind of its own, which has no place.
func (e *eventWriter) named(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return e.send("event: " + name + "\ndata: " + string(text) + "\n\n")
}
