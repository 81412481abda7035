package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/sandboxes"
	"portreeve.dev/nodes/guest/frame"
	"portreeve.dev/sso"
)

const (
	maxOutput   = 1 << 20 // of each stream in a buffered answer
	maxExec     = 24 * time.Hour
	defaultExec = 10 * time.Minute
	timedOut    = 124 // as timeout(1) says it
	slack       = 5 * time.Second
	eventWait   = 2 * time.Second // for the node's word on why a sandbox ended
)

type executeIn struct {
	Command    command           `json:"command" doc:"A shell line, or a program and its arguments."`
	WorkingDir string            `json:"working_dir,omitempty" doc:"Default /workspace."`
	Cwd        string            `json:"cwd,omitempty" doc:"The same."`
	Env        map[string]string `json:"env,omitempty"`
	Timeout    int64             `json:"timeout,omitempty" doc:"Milliseconds; default 600,000."`
	Stream     bool              `json:"stream,omitempty" doc:"Answer with server-sent events."`
	Stdin      string            `json:"stdin,omitempty"`
}

type executeOut struct {
	ExitCode        int    `json:"exit_code"`
	Stdout          string `json:"stdout"`
	Stderr          string `json:"stderr"`
	StdoutTruncated bool   `json:"stdout_truncated" doc:"Over 1 MiB; the rest was dropped."`
	StderrTruncated bool   `json:"stderr_truncated"`
	TimedOut        bool   `json:"timed_out,omitempty" doc:"exit_code is 124."`
	DurationMS      int64  `json:"duration_ms"`
}

// A command is a shell line, or a list whose first is a program.
type command []string

// UnmarshalJSON takes a string for a line of sh.
func (c *command) UnmarshalJSON(data []byte) error {
	var line string
	if json.Unmarshal(data, &line) == nil {
		if strings.TrimSpace(line) == "" {
			return invalid("body.command", "is empty")
		}
		*c = command{"/bin/sh", "-c", line}
		return nil
	}
	var list []string
	if json.Unmarshal(data, &list) != nil {
		return invalid("body.command", "must be a string or a list of strings")
	}
	if len(list) == 0 || list[0] == "" {
		return invalid("body.command", "is empty")
	}
	*c = list
	return nil
}

// Schema says the same in the OpenAPI document.
func (command) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{{Type: "string"}, {Type: "array", Items: &huma.Schema{Type: "string"}}}, Description: "A shell line, or a program and its arguments."}
}

func (s *Server) executeRoutes() {
	s.plain(sso.ScopeWrite, huma.Operation{OperationID: "execute", Method: http.MethodPost, Path: "/sandbox/{id}/execute", Summary: "Run a command",
		Description: "With stream: events stdout {data}, stderr {data}, exit {code}, error {error}, done.", Tags: []string{"exec"}},
		shape[executeIn](s, "ExecuteIn"), shape[executeOut](s, "ExecuteOut"), s.execute)
}

func (s *Server) execute(w http.ResponseWriter, r *http.Request, c *caller) error {
	b, err := s.running(r.Context(), c, r.PathValue("id"))
	if err != nil {
		return err
	}
	var in executeIn
	if err := decode(r, &in); err != nil {
		return err
	}
	m, limit, err := in.message()
	if err != nil {
		return err
	}
	// What was run is the client's: it may hold anything, so it is not written down.
	if err := s.note(r.Context(), c, audit.CommandExecute, b.ID, nil); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), limit+slack)
	defer cancel()
	begun := s.Now()
	p, err := s.Guest.Exec(ctx, b.ID, m)
	if err != nil {
		return s.guestRefused(ctx, c, b, err)
	}
	var input sync.WaitGroup
	defer input.Wait()
	defer p.Close() // ends a write that waits
	if m.Stdin {
		input.Go(func() { feedInput(p, in.Stdin) })
	}
	if in.Stream {
		s.executeStream(ctx, w, c, b, p)
		return nil
	}
	return s.executeBuffered(ctx, w, c, b, p, begun)
}

// feedInput sends the input. It ends with the process at the latest.
func feedInput(p Process, input string) {
	if _, err := io.WriteString(p, input); err == nil {
		p.CloseInput()
	}
}

func (in *executeIn) message() (frame.ExecMessage, time.Duration, error) {
	m := frame.ExecMessage{Argv: in.Command, Env: in.Env, Cwd: in.WorkingDir, Stdin: in.Stdin != ""}
	if len(m.Argv) == 0 {
		return m, 0, invalid("body.command", "is missing")
	}
	for _, a := range m.Argv {
		if strings.Contains(a, "\x00") {
			return m, 0, invalid("body.command", "holds a NUL")
		}
	}
	if m.Cwd == "" {
		m.Cwd = in.Cwd
	}
	if strings.Contains(m.Cwd, "\x00") || len(m.Cwd) > maxPath || m.Cwd != "" && !strings.HasPrefix(m.Cwd, "/") {
		return m, 0, invalid("body.working_dir", "must be an absolute path")
	}
	if err := checkEnv("body.env", in.Env); err != nil {
		return m, 0, err
	}
	limit := defaultExec
	if in.Timeout != 0 {
		limit = time.Duration(in.Timeout) * time.Millisecond
	}
	if in.Timeout < 0 || in.Timeout > maxExec.Milliseconds() {
		return m, 0, invalid("body.timeout", "must be from 1 to 86,400,000 milliseconds")
	}
	m.TimeoutMS = limit.Milliseconds()
	return m, limit, nil
}

// running returns a sandbox of the caller's org that runs, or the refusal.
func (s *Server) running(ctx context.Context, c *caller, id string) (store.Sandbox, error) {
	b, err := s.sandbox(ctx, c, id)
	if err == nil && (b.Status != store.Running || b.Kind == store.Attached) {
		err = notRunning(b)
	}
	return b, err
}

// note records something that is done in a sandbox and changes no row.
func (s *Server) note(ctx context.Context, c *caller, action audit.Action, object string, details map[string]string) error {
	_, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) error { return tx.Record(ctx, action, object, details) })
	return err
}

// guestRefused turns a guest's error into a refusal. When the sandbox could not be reached, the node may be about to say why.
func (s *Server) guestRefused(ctx context.Context, c *caller, b store.Sandbox, err error) error {
	g, ok := errors.AsType[*GuestError](err)
	if ok && g.Code != frame.CodeUnavailable {
		return err
	}
	s.Log.Warn("guest", "err", err, "sandbox", b.ID)
	wait, cancel := context.WithTimeout(context.WithoutCancel(ctx), eventWait)
	defer cancel()
	if now, e := s.Sandboxes.End(wait, c.org(), b.ID); e == nil && now.Status != store.Running {
		return notRunning(now)
	}
	return &GuestError{Code: frame.CodeUnavailable}
}

func (s *Server) executeBuffered(ctx context.Context, w http.ResponseWriter, c *caller, b store.Sandbox, p Process, begun time.Time) error {
	var stdout, stderr capped
	for {
		o, err := p.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			if ctx.Err() == context.DeadlineExceeded {
				return answerJSON(w, executeOut{ExitCode: timedOut, Stdout: stdout.String(), Stderr: stderr.String(), TimedOut: true,
					StdoutTruncated: stdout.over, StderrTruncated: stderr.over, DurationMS: s.Now().Sub(begun).Milliseconds()})
			}
			return s.guestRefused(ctx, c, b, err)
		}
		if o.Stderr {
			stderr.Write(o.Data)
		} else {
			stdout.Write(o.Data)
		}
	}
	exit := p.Exit()
	if exit.Signal == 9 && !exit.TimedOut {
		// The kernel kills this way for memory, and may take the whole sandbox with it.
		if now, err := s.Store.Sandbox(ctx, c.org(), b.ID); err == nil && now.Reason == sandboxes.ReasonOOM {
			return notRunning(now)
		}
	}
	if exit.TimedOut {
		exit.Code = timedOut
	}
	return answerJSON(w, executeOut{ExitCode: exit.Code, Stdout: stdout.String(), Stderr: stderr.String(), StdoutTruncated: stdout.over,
		StderrTruncated: stderr.over, TimedOut: exit.TimedOut, DurationMS: s.Now().Sub(begun).Milliseconds()})
}

func answerJSON(w http.ResponseWriter, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(append(text, '\n'))
	return nil
}

// capped keeps the first maxOutput bytes.
type capped struct {
	bytes.Buffer
	over bool
}

func (c *capped) Write(p []byte) (int, error) {
	if room := maxOutput - c.Len(); len(p) > room {
		c.over = true
		p = p[:room]
	}
	return c.Buffer.Write(p)
}

func (c *capped) String() string { return strings.ToValidUTF8(c.Buffer.String(), "\uFFFD") }

type execEvent struct {
	Type     string  `json:"type"`
	Data     *string `json:"data,omitempty"`
	Code     *int    `json:"code,omitempty"`
	Error    string  `json:"error,omitempty"`
	TimedOut bool    `json:"timed_out,omitempty"`
}

func (s *Server) executeStream(ctx context.Context, w http.ResponseWriter, c *caller, b store.Sandbox, p Process) {
	events := startEvents(w)
	var stdout, stderr runes
	send := func(kind, text string) error {
		if text == "" {
			return nil
		}
		return events.data("", execEvent{Type: kind, Data: &text})
	}
	for {
		o, err := p.Next(ctx)
		if err != nil {
			if send("stdout", stdout.rest()) != nil || send("stderr", stderr.rest()) != nil {
				return
			}
			s.endStream(ctx, events, c, b, p, err)
			return
		}
		if o.Stderr {
			err = send("stderr", stderr.add(o.Data))
		} else {
			err = send("stdout", stdout.add(o.Data))
		}
		if err != nil {
			return // the client is gone, and Close ends the process
		}
	}
}

func (s *Server) endStream(ctx context.Context, events *eventWriter, c *caller, b store.Sandbox, p Process, err error) {
	var last execEvent
	switch {
	case err == io.EOF:
		exit := p.Exit()
		if exit.TimedOut {
			exit.Code = timedOut
		}
		last = execEvent{Type: "exit", Code: &exit.Code, TimedOut: exit.TimedOut}
	case ctx.Err() == context.DeadlineExceeded:
		code := timedOut
		last = execEvent{Type: "exit", Code: &code, TimedOut: true}
	default:
		last = execEvent{Type: "error", Error: refuse(s.guestRefused(ctx, c, b, err)).Code}
	}
	if events.data("", last) == nil {
		events.data("", execEvent{Type: "done"})
	}
}

// runes keeps the beginning of a character whose end has not arrived yet.
type runes struct{ held []byte }

func (r *runes) add(p []byte) string {
	all := append(r.held, p...)
	end := len(all)
	for back := 1; back < utf8.UTFMax && back <= len(all); back++ {
		if first := all[len(all)-back]; utf8.RuneStart(first) {
			if !utf8.FullRune(all[len(all)-back:]) {
				end = len(all) - back
			}
			break
		}
	}
	text := strings.ToValidUTF8(string(all[:end]), "\uFFFD")
	r.held = append([]byte(nil), all[end:]...)
	return text
}

func (r *runes) rest() string {
	text := strings.ToValidUTF8(string(r.held), "\uFFFD")
	r.held = nil
	return text
}
