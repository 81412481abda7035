package apitest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"

	"portreeve.dev/gateway/api"
	"portreeve.dev/nodes/guest/frame"
)

// Exec runs a process of this machine, with the sandbox's folder as its own.
func (g *Guest) Exec(ctx context.Context, sandbox string, m frame.ExecMessage) (api.Process, error) {
	if err := g.broken(); err != nil {
		return nil, err
	}
	if m.Cwd == "" {
		m.Cwd = "/workspace"
	}
	dir := g.path(sandbox, m.Cwd)
	if _, err := os.Stat(dir); err != nil {
		return nil, &api.GuestError{Code: frame.CodeNoCwd}
	}
	cmd := exec.Command(m.Argv[0], m.Argv[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + dir}
	for name, value := range m.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	p := &process{cmd: cmd, output: make(chan api.Output), done: make(chan struct{}), closed: make(chan struct{})}
	if err := p.start(m); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return nil, &api.GuestError{Code: frame.CodeNoCommand}
		}
		return nil, &api.GuestError{Code: frame.CodeNotExecutable}
	}
	p.all.Go(func() { p.watch(ctx, time.Duration(m.TimeoutMS)*time.Millisecond) })
	return p, nil
}

type process struct {
	cmd    *exec.Cmd
	input  io.WriteCloser
	tty    *os.File
	output chan api.Output
	done   chan struct{} // closed when it has ended and exit is known
	closed chan struct{}
	once   sync.Once
	all    sync.WaitGroup

	mu       sync.Mutex
	timedOut bool
	exit     frame.ExitMessage
}

func (p *process) start(m frame.ExecMessage) error {
	var readers []func()
	if m.TTY != nil {
		f, err := pty.StartWithSize(p.cmd, &pty.Winsize{Rows: m.TTY.Rows, Cols: m.TTY.Cols})
		if err != nil {
			return err
		}
		p.tty, p.input = f, f
		readers = append(readers, func() { p.read(f, false) })
	} else {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		stdout, err := p.cmd.StdoutPipe()
		if err != nil {
			return err
		}
		stderr, err := p.cmd.StderrPipe()
		if err != nil {
			return err
		}
		if m.Stdin {
			if p.input, err = p.cmd.StdinPipe(); err != nil {
				return err
			}
		}
		if err := p.cmd.Start(); err != nil {
			return err
		}
		readers = append(readers, func() { p.read(stdout, false) }, func() { p.read(stderr, true) })
	}
	p.all.Go(func() {
		var wait sync.WaitGroup
		for _, read := range readers {
			wait.Go(read)
		}
		wait.Wait()
		p.end()
	})
	return nil
}

func (p *process) read(r io.Reader, stderr bool) {
	for {
		buffer := make([]byte, 4096)
		n, err := r.Read(buffer)
		if n > 0 {
			select {
			case p.output <- api.Output{Stderr: stderr, Data: buffer[:n]}:
			case <-p.closed:
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *process) end() {
	p.cmd.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	p.exit = frame.ExitMessage{Code: status.ExitStatus(), TimedOut: p.timedOut}
	if status.Signaled() {
		p.exit.Signal, p.exit.Code = int(status.Signal()), 128+int(status.Signal())
	}
	close(p.done)
}

func (p *process) watch(ctx context.Context, limit time.Duration) {
	var timer <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-p.done:
		return
	case <-timer:
		p.mu.Lock()
		p.timedOut = true
		p.mu.Unlock()
	case <-ctx.Done():
	case <-p.closed:
	}
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
}

func (p *process) Next(ctx context.Context) (api.Output, error) {
	select {
	case o := <-p.output:
		return o, nil
	case <-p.done:
		return api.Output{}, io.EOF
	case <-ctx.Done():
		return api.Output{}, ctx.Err()
	}
}

func (p *process) Exit() frame.ExitMessage {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

func (p *process) Write(b []byte) (int, error) { return p.input.Write(b) }

func (p *process) CloseInput() error {
	if p.tty != nil {
		_, err := p.tty.Write([]byte{4}) // end of transmission
		return err
	}
	return p.input.Close()
}

func (p *process) Resize(size frame.Size) error {
	return pty.Setsize(p.tty, &pty.Winsize{Rows: size.Rows, Cols: size.Cols})
}

func (p *process) Close() error {
	p.once.Do(func() {
		close(p.closed)
		if p.input != nil {
			p.input.Close()
		}
	})
	p.all.Wait()
	return nil
}
