package lab

import (
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// EventGap is the pause between two events of a stream.
const EventGap = 300 * time.Millisecond

// stream serves what goes on: a WebSocket that is asked for gives back what it is sent, and a path that ends in /events says
// three events, one by one.
func stream(rw http.ResponseWriter, r *http.Request) bool {
	switch {
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		echoMessages(rw, r)
	case path.Base(r.URL.Path) == "events":
		sayEvents(rw, r)
	default:
		return false
	}
	return true
}

func echoMessages(rw http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(rw, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // whatever the Origin
	if err != nil {
		return
	}
	defer conn.CloseNow()
	for {
		kind, data, err := conn.Read(r.Context())
		if err != nil || conn.Write(r.Context(), kind, data) != nil {
			return
		}
	}
}

func sayEvents(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(EventGap)
	defer tick.Stop()
	for i := range 3 {
		if i > 0 {
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
		io.WriteString(rw, fmt.Sprintf("data: %d\n\n", i))
		http.NewResponseController(rw).Flush()
	}
}
