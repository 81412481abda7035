package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/coder/websocket"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"portreeve.dev/gateway/client"
)

func (a *app) shell() *cobra.Command {
	var f createFlags
	c := &cobra.Command{Use: "shell [ID]", Short: "A terminal in a sandbox; in a new one, which ends with it, unless ID is given", Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return &usageError{c.CommandPath(), fmt.Errorf("%s takes one ID or none, not %d arguments", c.CommandPath(), len(args))}
			}
			api, err := a.client()
			if err != nil {
				return err
			}
			id := ""
			if len(args) == 1 {
				id = args[0]
			} else {
				_, made, err := createBox(c.Context(), api, f)
				if err != nil {
					return err
				}
				id = made.ID
				defer deleteBox(api, id)
			}
			return a.attach(c.Context(), api, id)
		}}
	f.register(c)
	return c
}

// A control message travels as text; what is typed and printed travels as binary.
type control struct {
	Type string `json:"type"` // resize, exit, error
	Rows int    `json:"rows,omitempty"`
	Cols int    `json:"cols,omitempty"`
	Code int    `json:"code,omitempty"`
	Err  string `json:"error,omitempty"`
}

func (a *app) attach(ctx context.Context, api *client.Client, id string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := api.WebSocket(ctx, "/sandbox/"+segment(id)+"/shell")
	if err != nil {
		return err
	}
	defer conn.CloseNow()
	restore, err := a.rawTerminal(ctx, conn)
	if err != nil {
		return err
	}
	defer restore()
	go a.forward(ctx, conn)
	code, err := a.show(ctx, conn)
	if err == nil && code != 0 {
		return exit(code)
	}
	return err
}

// rawTerminal hands the terminal over, with its size, when there is one.
func (a *app) rawTerminal(ctx context.Context, conn *websocket.Conn) (restore func(), err error) {
	f, ok := a.in.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return func() {}, nil
	}
	old, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return nil, err
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	resized <- syscall.SIGWINCH // the first size
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-resized:
				if cols, rows, err := term.GetSize(int(f.Fd())); err == nil {
					send(ctx, conn, control{Type: "resize", Rows: rows, Cols: cols})
				}
			}
		}
	}()
	return func() { signal.Stop(resized); term.Restore(int(f.Fd()), old) }, nil
}

func send(ctx context.Context, conn *websocket.Conn, c control) error {
	data, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return conn.Write(ctx, websocket.MessageText, data)
}

func (a *app) forward(ctx context.Context, conn *websocket.Conn) {
	buffer := make([]byte, 4096)
	for {
		n, err := a.in.Read(buffer)
		if n > 0 && conn.Write(ctx, websocket.MessageBinary, buffer[:n]) != nil {
			return
		}
		if errors.Is(err, io.EOF) {
			send(ctx, conn, control{Type: "stdin_close"})
		}
		if err != nil {
			return
		}
	}
}

func (a *app) show(ctx context.Context, conn *websocket.Conn) (int, error) {
	for {
		kind, data, err := conn.Read(ctx)
		switch {
		case err != nil && websocket.CloseStatus(err) == websocket.StatusNormalClosure:
			return 0, nil
		case err != nil:
			return 0, err
		case kind == websocket.MessageBinary:
			a.out.Write(data)
			continue
		}
		var c control
		if err := json.Unmarshal(data, &c); err != nil {
			return 0, err
		}
		switch c.Type {
		case "exit":
			return c.Code, nil
		case "error":
			return 0, errors.New(c.Err)
		}
	}
}
