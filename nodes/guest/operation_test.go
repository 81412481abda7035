package guest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"portreeve.dev/nodes/guest/frame"
)

// raw is one frame as init sends it, without the checks of a Writer.
type raw struct {
	typ     frame.Type
	payload string
}

func (f raw) bytes() []byte {
	n := len(f.payload)
	return append([]byte{byte(f.typ), byte(n >> 16), byte(n >> 8), byte(n)}, f.payload...)
}

const oneFile = `{"name":"x","kind":"file","size":1,"mode":420,"modified":0}`

func TestOperationRefusesHostileFrames(t *testing.T) {
	exec := frame.Operation{Type: frame.OpExec, Message: frame.ExecMessage{Argv: []string{"x"}}}
	tty := frame.Operation{Type: frame.OpExec, Message: frame.ExecMessage{Argv: []string{"x"}, TTY: &frame.Size{Rows: 1, Cols: 1}}}
	read := frame.Operation{Type: frame.OpRead, Message: frame.ReadMessage{Path: "x", Max: 3}}
	list := frame.Operation{Type: frame.OpList, Message: frame.PathMessage{Path: "x"}}
	stat := frame.Operation{Type: frame.OpStat, Message: frame.PathMessage{Path: "x"}}
	write := frame.Operation{Type: frame.OpWrite, Message: frame.WriteMessage{Path: "x"}}
	remove := frame.Operation{Type: frame.OpDelete, Message: frame.DeleteMessage{Path: "x"}}
	started := raw{frame.Started, `{"pid":5}`}
	for name, c := range map[string]struct {
		op     frame.Operation
		frames []raw
		passed int // frames that are in order and reach control before
	}{
		"unknown type":               {exec, []raw{{99, ""}}, 0},
		"output before the start":    {exec, []raw{{frame.Stdout, "x"}}, 0},
		"two starts":                 {exec, []raw{started, started}, 1},
		"start with a wild pid":      {exec, []raw{{frame.Started, `{"pid":-1}`}}, 0},
		"start with more fields":     {exec, []raw{{frame.Started, `{"pid":1,"x":1}`}}, 0},
		"empty output":               {exec, []raw{started, {frame.Stdout, ""}}, 1},
		"output over the cap":        {exec, []raw{started, {frame.Stdout, strings.Repeat("x", frame.MaxPayload+1)}}, 1},
		"stderr of a terminal":       {tty, []raw{started, {frame.Stderr, "x"}}, 1},
		"credit for nothing":         {exec, []raw{started, {frame.Credit, `{"bytes":1}`}}, 1},
		"exit before the start":      {exec, []raw{{frame.Exit, `{"code":0}`}}, 0},
		"exit 256":                   {exec, []raw{started, {frame.Exit, `{"code":256}`}}, 1},
		"file data in an exec":       {exec, []raw{started, {frame.Data, "x"}}, 1},
		"a host's frame":             {exec, []raw{started, {frame.Cancel, ""}}, 1},
		"an operation":               {exec, []raw{{frame.OpPing, ""}}, 0},
		"an error code of its own":   {exec, []raw{{frame.Error, `{"code":"sorry","message":""}`}}, 0},
		"an error with escapes":      {exec, []raw{{frame.Error, `{"code":"internal","message":"\u001b[2J"}`}}, 0},
		"data before the info":       {read, []raw{{frame.Data, "x"}}, 0},
		"more data than asked for":   {read, []raw{{frame.Info, oneFile}, {frame.Data, "abc"}, {frame.Data, "d"}}, 2},
		"end before the info":        {read, []raw{{frame.End, ""}}, 0},
		"a path for a name":          {stat, []raw{{frame.Info, strings.Replace(oneFile, `"x"`, `"../x"`, 1)}}, 0},
		"a negative size":            {stat, []raw{{frame.Info, strings.Replace(oneFile, `:1,`, `:-1,`, 1)}}, 0},
		"an empty listing frame":     {list, []raw{{frame.Entries, `[]`}}, 0},
		"info in a listing":          {list, []raw{{frame.Entries, `[` + oneFile + `]`}, {frame.Info, oneFile}}, 1},
		"info before ready":          {write, []raw{{frame.Info, oneFile}}, 0},
		"two readies":                {write, []raw{{frame.Ready, ""}, {frame.Ready, ""}}, 1},
		"pong for a delete":          {remove, []raw{{frame.Pong, `{}`}}, 0},
		"json that is none":          {stat, []raw{{frame.Info, `{"name":`}}, 0},
		"json with something behind": {stat, []raw{{frame.Info, oneFile + "{}"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, Limits{})
			h.fakeInit(t, func(_ frame.Operation, conn net.Conn, r *frame.Reader, w *frame.Writer) {
				for _, f := range c.frames {
					conn.Write(f.bytes())
				}
				r.Next(frame.MaxPayload) // until the host closes
			})
			control, result := h.operation(t, t.Context())
			if err := c.op.Send(frame.NewWriter(control)); err != nil {
				t.Fatal(err)
			}
			r := frame.NewReader(control)
			for i := range c.passed {
				if typ, _, err := r.Next(frame.MaxPayload); err != nil || typ != c.frames[i].typ {
					t.Fatalf("frame %d: %s, %v", i, typ, err)
				}
			}
			typ, payload, err := r.Next(frame.MaxPayload)
			if err != nil || typ != frame.Error {
				t.Fatalf("the breach was passed on: %s %q, %v", typ, payload, err)
			}
			if err := operationError(payload); !errors.Is(err, ErrHostile) {
				t.Errorf("control hears %v", err)
			}
			var hostile *HostileError
			if err := received(t, result); !errors.As(err, &hostile) || hostile.Sandbox != h.cfg.Sandbox {
				t.Errorf("the log hears %v", err)
			}
			if _, ok := h.Hello(); !ok {
				t.Error("one bad stream ended the session")
			}
		})
	}
}

func TestFramesAreEncodedAnew(t *testing.T) {
	h := newHost(t, Limits{})
	h.fakeInit(t, func(_ frame.Operation, conn net.Conn, r *frame.Reader, w *frame.Writer) {
		conn.Write(raw{frame.Info, " { \"mode\":420, \"NAME\":\"x\", \"name\":\"y\",\"kind\":\"file\",\"size\":1,\"modified\":0}\n "}.bytes())
		r.Next(frame.MaxPayload)
	})
	control, _ := h.operation(t, t.Context())
	frame.Operation{Type: frame.OpStat, Message: frame.PathMessage{Path: "x"}}.Send(frame.NewWriter(control))
	_, payload, err := frame.NewReader(control).Next(frame.MaxPayload)
	if want := strings.Replace(oneFile, `"x"`, `"y"`, 1); err != nil || string(payload) != want {
		t.Errorf("%s, %v", payload, err)
	}
}

func TestOperationRefusesCallers(t *testing.T) {
	for name, first := range map[string]raw{
		"a relay":           {frame.OpRelay, `{"port":22}`},
		"no operation":      {frame.Stdin, "x"},
		"a broken exec":     {frame.OpExec, `{"argv":[]}`},
		"an unknown option": {frame.OpExec, `{"argv":["x"],"user":"root"}`},
	} {
		h := newHost(t, Limits{})
		h.fakeInit(t, func(op frame.Operation, _ net.Conn, _ *frame.Reader, _ *frame.Writer) {
			t.Errorf("%s reached init: %+v", name, op)
		})
		control, result := h.operation(t, t.Context())
		control.Write(first.bytes())
		typ, payload, err := frame.NewReader(control).Next(frame.MaxPayload)
		if err != nil || typ != frame.Error || !errors.Is(operationError(payload), ErrBadRequest) {
			t.Errorf("%s: %s %s, %v", name, typ, payload, err)
		}
		if err := received(t, result); !errors.Is(err, ErrBadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// execUntilEnd is an init that starts and then reports what it hears.
func execUntilEnd(heard chan frame.Type) func(frame.Operation, net.Conn, *frame.Reader, *frame.Writer) {
	return func(_ frame.Operation, _ net.Conn, r *frame.Reader, w *frame.Writer) {
		w.SendMessage(frame.Started, frame.StartedMessage{PID: 2})
		defer close(heard)
		for {
			typ, _, err := r.Next(frame.MaxPayload)
			if err != nil {
				return
			}
			heard <- typ
		}
	}
}

func TestCallerGoneCancels(t *testing.T) {
	for _, ours := range []bool{false, true} {
		h := newHost(t, Limits{})
		heard := make(chan frame.Type, 10)
		h.fakeInit(t, execUntilEnd(heard))
		ctx, cancel := context.WithCancel(t.Context())
		control, result := h.operation(t, ctx)
		frame.Operation{Type: frame.OpExec, Message: frame.ExecMessage{Argv: []string{"x"}}}.Send(frame.NewWriter(control))
		if typ, _, err := frame.NewReader(control).Next(frame.MaxPayload); err != nil || typ != frame.Started {
			t.Fatal(typ, err)
		}
		if ours {
			cancel() // inward ends, not the caller
		} else {
			control.Close()
		}
		received(t, result)
		typ, more := <-heard
		if cancelled := more && typ == frame.Cancel; cancelled == ours {
			t.Errorf("ended by us %v: init heard %s, %v", ours, typ, more)
		}
		cancel()
	}
}

func TestSilentSandboxTimesOut(t *testing.T) {
	h := newHost(t, Limits{Answer: 30 * time.Millisecond})
	h.fakeInit(t, func(_ frame.Operation, _ net.Conn, r *frame.Reader, _ *frame.Writer) { r.Next(frame.MaxPayload) })
	if _, err := h.client(t).Stat(t.Context(), "x"); !errors.Is(err, ErrTimeout) {
		t.Errorf("stat: %v", err)
	}
	if _, err := h.client(t).Exec(t.Context(), Exec{Argv: []string{"x"}}); !errors.Is(err, ErrTimeout) {
		t.Errorf("exec: %v", err)
	}
	if _, err := h.Ping(t.Context()); !errors.Is(err, ErrTimeout) {
		t.Errorf("ping: %v", err)
	}
}

func TestQuietProcessHasNoDeadline(t *testing.T) {
	h := newHost(t, Limits{Answer: time.Second}) // in which init says that it has started
	release := make(chan struct{})
	h.fakeInit(t, func(_ frame.Operation, _ net.Conn, _ *frame.Reader, w *frame.Writer) {
		w.SendMessage(frame.Started, frame.StartedMessage{PID: 2})
		<-release
		w.Send(frame.Stdout, []byte("late"))
		w.SendMessage(frame.Exit, frame.ExitMessage{Code: 3})
	})
	var out bytes.Buffer
	p, err := h.client(t).Exec(t.Context(), Exec{Argv: []string{"x"}, Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(1200*time.Millisecond, func() { close(release) })
	if exit, err := p.Wait(); err != nil || exit.Code != 3 || out.String() != "late" {
		t.Errorf("%+v, %v, %q", exit, err, out.String())
	}
}

func TestInputKeepsToItsWindow(t *testing.T) {
	e := newExchange(frame.Operation{Type: frame.OpExec, Message: frame.ExecMessage{Argv: []string{"x"}, Stdin: true}})
	e.running = true
	chunk := make([]byte, frame.MaxPayload)
	for range frame.StdinWindow / len(chunk) {
		if _, err := e.fromHost(frame.Stdin, chunk); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.fromHost(frame.Stdin, chunk[:1]); !errors.Is(err, frame.ErrFormat) {
		t.Errorf("over the window: %v", err)
	}
	e = newExchange(frame.Operation{Type: frame.OpExec, Message: frame.ExecMessage{Argv: []string{"x"}}})
	if _, err := e.fromHost(frame.Stdin, chunk[:1]); !errors.Is(err, frame.ErrFormat) {
		t.Errorf("stdin without stdin: %v", err)
	}
	if _, err := e.fromHost(frame.Resize, []byte(`{"rows":1,"cols":1}`)); !errors.Is(err, frame.ErrFormat) {
		t.Errorf("resize without a terminal: %v", err)
	}
	if _, err := e.fromHost(frame.Signal, []byte(`{"signal":9}`)); err != nil {
		t.Errorf("signal: %v", err)
	}
}

func TestClientBelievesNobody(t *testing.T) {
	client := NewClient(func(context.Context) (net.Conn, error) {
		control, inward := pair(t)
		go func() {
			defer inward.Close()
			frame.NewReader(inward).Next(frame.MaxPayload)
			inward.Write(raw{frame.Stdout, "x"}.bytes())
		}()
		return control, nil
	})
	if _, err := client.Exec(t.Context(), Exec{Argv: []string{"x"}}); !errors.Is(err, ErrHostile) {
		t.Errorf("%v", err)
	}
	if _, err := client.List(t.Context(), "x"); !errors.Is(err, ErrHostile) {
		t.Errorf("%v", err)
	}
	if _, err := client.List(t.Context(), ""); !errors.Is(err, ErrBadRequest) {
		t.Errorf("%v", err)
	}
}

func TestTruncatedFileIsAnError(t *testing.T) {
	h := newHost(t, Limits{})
	h.fakeInit(t, func(_ frame.Operation, _ net.Conn, _ *frame.Reader, w *frame.Writer) {
		w.SendMessage(frame.Info, frame.InfoMessage{Name: "x", Kind: frame.KindFile, Size: 10})
		w.Send(frame.Data, []byte("half"))
	})
	f, err := h.client(t).ReadFile(t.Context(), "x", 100)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	buf := make([]byte, 100)
	n, _ := f.Read(buf)
	if n, err := f.Read(buf[n:]); n != 0 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("%d, %v", n, err)
	}
}

func TestEveryCodeHasItsError(t *testing.T) {
	for code, sentinel := range sentinels {
		if err := frame.NewError(code, "").Check(); err != nil {
			t.Errorf("%s: %v", code, err)
		}
		if err := error(&OperationError{Code: code, Text: "x"}); !errors.Is(err, sentinel) || !strings.HasSuffix(err.Error(), ": x") {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// FuzzExchange: whatever a stream says, what is passed on is canonical, and nothing follows the last frame.
func FuzzExchange(f *testing.F) {
	f.Add(uint8(frame.OpExec), append(raw{frame.Started, `{"pid":5}`}.bytes(), raw{frame.Exit, `{"code":0}`}.bytes()...))
	f.Add(uint8(frame.OpRead), append(raw{frame.Info, oneFile}.bytes(), raw{frame.End, ""}.bytes()...))
	f.Add(uint8(frame.OpList), append(raw{frame.Entries, "[" + oneFile + "]"}.bytes(), raw{frame.End, ""}.bytes()...))
	f.Add(uint8(frame.OpStat), raw{frame.Error, `{"code":"internal","message":"x"}`}.bytes())
	f.Fuzz(func(t *testing.T, op uint8, data []byte) {
		operation := frame.Operation{Type: frame.Type(op)}
		switch operation.Type {
		case frame.OpExec:
			operation.Message = frame.ExecMessage{Argv: []string{"x"}}
		case frame.OpRead:
			operation.Message = frame.ReadMessage{Path: "x", Max: 100}
		case frame.OpList:
			operation.Message = frame.PathMessage{Path: "x"}
		}
		e, twin := newExchange(operation), newExchange(operation)
		r := frame.NewReader(bytes.NewReader(data))
		for {
			typ, payload, err := r.Next(frame.MaxPayload)
			if err != nil {
				return
			}
			over := e.isOver()
			out, err := e.fromInit(typ, payload)
			if err != nil {
				return
			}
			if over {
				t.Fatalf("%s after the last frame", typ)
			}
			again, err := twin.fromInit(typ, out)
			if err != nil || !bytes.Equal(out, again) {
				t.Fatalf("%s: %q became %q, %v", typ, out, again, err)
			}
		}
	})
}
