package server

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/gateway/sandboxes"
	"portreeve.dev/nodes/guest"
	"portreeve.dev/nodes/guest/frame"
)

// guests reaches into sandboxes by way of inward, as the API and the sandboxes know it.
type guests struct{ inward *link.Peer }

var (
	_ api.Guest         = guests{}
	_ sandboxes.Readier = guests{}
)

func (g guests) Ready(ctx context.Context, id string) error {
	return g.inward.Call(ctx, role.InwardReady, role.SandboxRef{Sandbox: id}, nil)
}

// client gets a socket to inward for each operation.
func (g guests) client(sandbox string) *guest.Client {
	return guest.NewClient(func(ctx context.Context) (net.Conn, error) {
		conn, err := g.inward.Wait(ctx)
		if err != nil {
			return nil, err
		}
		mine, theirs, err := link.Pair()
		if err != nil {
			return nil, err
		}
		defer theirs.Close()
		socket, err := link.Socket(mine)
		if err != nil {
			return nil, err
		}
		if err := conn.Call(ctx, role.InwardOperation, role.SandboxRef{Sandbox: sandbox}, nil, theirs); err != nil {
			socket.Close()
			return nil, err
		}
		return socket, nil
	})
}

// refused turns what the sandbox says into the API's form.
func refused(err error) error {
	var op *guest.OperationError
	if errors.As(err, &op) {
		return &api.GuestError{Code: op.Code}
	}
	return err
}

func (g guests) Exec(ctx context.Context, sandbox string, m frame.ExecMessage) (api.Process, error) {
	out := newOutputs(ctx)
	started, err := g.client(sandbox).Exec(ctx, execOf(m, out))
	if err != nil {
		return nil, refused(err)
	}
	p := &process{Process: started, out: out}
	go p.watch()
	return p, nil
}

func (g guests) Read(ctx context.Context, sandbox, path string, max int64) (io.ReadCloser, frame.InfoMessage, error) {
	f, err := g.client(sandbox).ReadFile(ctx, path, max)
	if err != nil {
		return nil, frame.InfoMessage{}, refused(err)
	}
	return f, infoOf(f.Info), nil
}

func (g guests) Write(ctx context.Context, sandbox string, m frame.WriteMessage, content io.Reader) error {
	_, err := g.client(sandbox).WriteFile(ctx, m.Path, content, writeOptions(m))
	return refused(err)
}

func (g guests) List(ctx context.Context, sandbox, path string) ([]frame.InfoMessage, error) {
	entries, err := g.client(sandbox).List(ctx, path)
	if err != nil {
		return nil, refused(err)
	}
	out := make([]frame.InfoMessage, len(entries))
	for i, e := range entries {
		out[i] = infoOf(e)
	}
	return out, nil
}

func (g guests) Delete(ctx context.Context, sandbox string, m frame.DeleteMessage) error {
	return refused(g.client(sandbox).Delete(ctx, m.Path, m.Recursive))
}

// A process is a running command, its output handed over piece by piece.
type process struct {
	*guest.Process
	out  *outputs
	exit frame.ExitMessage
	err  error
}

var _ api.Process = (*process)(nil)

func (p *process) watch() {
	exit, err := p.Wait()
	p.exit, p.err = exitOf(exit), refused(err)
	close(p.out.ended)
}

func (p *process) Next(ctx context.Context) (api.Output, error) {
	select {
	case o := <-p.out.pieces:
		return o, nil
	default:
	}
	select {
	case o := <-p.out.pieces:
		return o, nil
	case <-p.out.ended:
	case <-ctx.Done():
		return api.Output{}, ctx.Err()
	}
	select { // written before the end
	case o := <-p.out.pieces:
		return o, nil
	default:
	}
	if p.err != nil {
		return api.Output{}, p.err
	}
	return api.Output{}, io.EOF
}

func (p *process) Exit() frame.ExitMessage { return p.exit }

func (p *process) Write(b []byte) (int, error) { return p.Stdin().Write(b) }

func (p *process) CloseInput() error { return p.Stdin().Close() }

func (p *process) Close() error {
	p.Cancel()
	p.out.stop()
	<-p.out.ended
	return nil
}

// outputs joins two writers into one row of pieces. A reader that is slow holds the process back.
type outputs struct {
	ctx    context.Context
	pieces chan api.Output
	ended  chan struct{}
	once   sync.Once
	closed chan struct{}
}

func newOutputs(ctx context.Context) *outputs {
	return &outputs{ctx: ctx, pieces: make(chan api.Output, 16), ended: make(chan struct{}), closed: make(chan struct{})}
}

func (o *outputs) stop() { o.once.Do(func() { close(o.closed) }) }

// A stream is one of the two.
type stream struct {
	*outputs
	stderr bool
}

func (s stream) Write(b []byte) (int, error) {
	select {
	case s.pieces <- api.Output{Stderr: s.stderr, Data: append([]byte(nil), b...)}:
		return len(b), nil
	case <-s.closed:
		return 0, io.ErrClosedPipe
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}
