package api

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/nodes/guest/frame"
	"portreeve.dev/sso"
)

const maxShellFrame = 64 << 10

// A shellMessage is a text frame: resize and eof from the client, exit and error to it.
type shellMessage struct {
	Type  string `json:"type"`
	Rows  uint16 `json:"rows,omitempty"`
	Cols  uint16 `json:"cols,omitempty"`
	Code  *int   `json:"code,omitempty"`
	Error string `json:"error,omitempty"`
}

func (s *Server) shellRoutes() {
	op := huma.Operation{OperationID: "shell", Method: http.MethodGet, Path: "/sandbox/{id}/shell", Summary: "Open a terminal",
		Description: "WebSocket. Binary frames are the terminal's bytes. Text frames are JSON: {type:resize,rows,cols} and {type:eof} from the client, {type:exit,code} and {type:error,error} to it. " +
			"Query: rows, cols, command (default the template's shell), term.", Tags: []string{"exec"}}
	s.plain(sso.ScopeWrite, op, nil, nil, s.shell)
}

func (s *Server) shell(w http.ResponseWriter, r *http.Request, c *caller) error {
	b, err := s.running(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return err
	}
	m, err := shellOrder(r)
	if err != nil {
		return err
	}
	if err := s.note(r.Context(), c, audit.ShellOpen, b.ID, nil); err != nil {
		return err
	}
	// The process first: a refusal is still a problem answer, not a closed socket.
	ctx, cancel := context.WithCancel(r.Context())
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer cancel()
	p, err := s.Guest.Exec(ctx, b.ID, m)
	if err != nil {
		return s.guestRefused(ctx, c, b, err)
	}
	defer p.Close()
	conn, err := websocket.Accept(w, r, nil) // refuses a browser's page of another origin
	if err != nil {
		return nil // Accept has answered
	}
	defer conn.CloseNow()
	conn.SetReadLimit(maxShellFrame)
	helpers.Go(func() {
		defer cancel()
		shellInput(ctx, conn, p)
	})
	helpers.Go(func() { s.shellBeat(ctx, cancel, conn, r, c) })
	end := s.shellOutput(ctx, conn, p)
	if end.Type == "error" {
		end.Error = refuse(s.guestRefused(ctx, c, b, &GuestError{Code: frame.CodeUnavailable})).Code
	}
	text, _ := json.Marshal(end)
	last, done := context.WithTimeout(context.WithoutCancel(ctx), slack)
	defer done()
	if conn.Write(last, websocket.MessageText, text) == nil {
		conn.Close(websocket.StatusNormalClosure, "")
	}
	return nil
}

func shellOrder(r *http.Request) (frame.ExecMessage, error) {
	q := r.URL.Query()
	size := frame.Size{Rows: 24, Cols: 80}
	for name, values := range q {
		var err error
		switch name {
		case "rows", "cols":
			var n uint64
			if n, err = strconv.ParseUint(values[0], 10, 16); err == nil && n >= 1 && n <= 4096 {
				if name == "rows" {
					size.Rows = uint16(n)
				} else {
					size.Cols = uint16(n)
				}
				continue
			}
			return frame.ExecMessage{}, invalid("query."+name, "must be from 1 to 4096")
		case "command", "term":
		default:
			return frame.ExecMessage{}, invalid("query."+name, "unknown query parameter")
		}
	}
	m := frame.ExecMessage{Argv: []string{"/bin/sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash -l; else exec sh -l; fi"}, TTY: &size, Env: map[string]string{"TERM": "xterm-256color"}}
	if term := q.Get("term"); term != "" {
		m.Env["TERM"] = term
	}
	if line := q.Get("command"); line != "" {
		m.Argv = []string{"/bin/sh", "-c", line}
	}
	if m.Check() != nil {
		return m, invalid("query.command", "is not a command")
	}
	return m, nil
}

// shellInput passes the client's frames on until the socket or the process ends.
func shellInput(ctx context.Context, conn *websocket.Conn, p Process) {
	for {
		kind, data, err := conn.Read(ctx)
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			if _, err := p.Write(data); err != nil {
				return
			}
			continue
		}
		var m shellMessage
		if json.Unmarshal(data, &m) != nil {
			conn.Close(websocket.StatusPolicyViolation, "text frames are JSON")
			return
		}
		switch m.Type {
		case "resize":
			size := frame.Size{Rows: m.Rows, Cols: m.Cols}
			if size.Check() == nil {
				err = p.Resize(size)
			}
		case "eof":
			err = p.CloseInput()
		default:
			conn.Close(websocket.StatusPolicyViolation, "unknown type")
			return
		}
		if err != nil {
			return
		}
	}
}

// shellOutput passes the terminal's bytes on, and returns how it ended.
func (s *Server) shellOutput(ctx context.Context, conn *websocket.Conn, p Process) shellMessage {
	for {
		o, err := p.Next(ctx)
		if err == io.EOF {
			code := p.Exit().Code
			return shellMessage{Type: "exit", Code: &code}
		}
		if err != nil {
			return shellMessage{Type: "error"}
		}
		write, done := context.WithTimeout(ctx, writeTime)
		err = conn.Write(write, websocket.MessageBinary, o.Data)
		done()
		if err != nil {
			return shellMessage{Type: "error"}
		}
	}
}

// shellBeat ends the shell of a client that is gone and of a key that is no longer good.
func (s *Server) shellBeat(ctx context.Context, cancel context.CancelFunc, conn *websocket.Conn, r *http.Request, c *caller) {
	beat := time.NewTicker(s.Heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		}
		ping, done := context.WithTimeout(ctx, s.Heartbeat)
		err := conn.Ping(ping)
		done()
		if err != nil || !s.stillGood(r, c) {
			cancel()
			return
		}
	}
}
