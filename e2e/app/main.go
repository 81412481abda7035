package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		os.Exit(1)
	}
}

func serve(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("it takes one address, not %d arguments", len(args))
	}
	l, err := net.Listen("tcp", args[0])
	if err != nil {
		return err
	}
	if err := os.WriteFile("listening", nil, 0o644); err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(handle), ReadHeaderTimeout: time.Minute}
	return s.Serve(l)
}

// handle is no ServeMux, which would tidy the paths that it is asked for.
func handle(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/ws":
		echo(w, r)
	case "/events":
		events(w, r)
	case "/moved":
		http.Redirect(w, r, "http://"+r.Host+"/here", http.StatusFound)
	default:
		answer(w, r)
	}
}

// A received request, and which one it was of this process.
type received struct {
	N      int64       `json:"n"`
	Method string      `json:"method"`
	Host   string      `json:"host"`
	URI    string      `json:"uri"`
	Header http.Header `json:"header"`
	Body   string      `json:"body"`
}

var requests atomic.Int64

func answer(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(received{requests.Add(1), r.Method, r.Host, r.RequestURI, r.Header, string(body)})
}

func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, nil) // of its own origin only, which the tunnel has to translate
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

func events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		fmt.Fprintf(w, "data: %d\n\n", i)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}
