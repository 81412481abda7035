package guest

import (
	"context"
	"fmt"
	"io"
	"sync"
	"syscall"
	"time"

	"portreeve.dev/nodes/guest/frame"
)

// Size is that of a terminal.
type Size = frame.Size

// Exec says what to run. Zero fields are left to init: cwd /workspace, no terminal, no input, no time limit.
type Exec struct {
	Argv    []string
	Env     map[string]string // added to init's defaults
	Cwd     string
	TTY     *Size // one terminal in place of three pipes; its output goes to Stdout
	Stdin   bool
	Timeout time.Duration // after which the sandbox kills it; Exit.TimedOut
	Detach  bool          // goes on when the caller is gone

	// Called from one goroutine. A writer that blocks holds the process back, one that fails cancels it. Default: dropped.
	Stdout, Stderr io.Writer
}

// Exit says how a process ended, in the sandbox's words. One ended by signal n has Code 128+n.
type Exit struct {
	Code     int
	Signal   syscall.Signal
	TimedOut bool
}

// Process is a started process.
type Process struct {
	call   *call
	cancel context.CancelFunc
	send   sync.Mutex // orders fromHost and the frame it allowed
	input  *stdin
	done   chan struct{}
	exit   Exit
	err    error
	sinks  map[frame.Type]io.Writer
}

// Exec starts a process. Until ctx ends: after that the process is cancelled, unless it was detached.
func (c *Client) Exec(ctx context.Context, e Exec) (*Process, error) {
	m := frame.ExecMessage{
		Argv: e.Argv, Env: e.Env, Cwd: e.Cwd, TTY: e.TTY, Stdin: e.Stdin,
		TimeoutMS: (e.Timeout + time.Millisecond - 1).Milliseconds(), Detach: e.Detach,
	}
	ctx, cancel := context.WithCancel(ctx)
	k, err := c.start(ctx, frame.Operation{Type: frame.OpExec, Message: m})
	if err != nil {
		cancel()
		return nil, err
	}
	_, payload, err := k.next() // Started, or an error
	if err == nil {
		_, err = frame.Decode[frame.StartedMessage](payload)
	}
	if err != nil {
		cancel()
		k.close()
		return nil, err
	}
	p := &Process{call: k, cancel: cancel, done: make(chan struct{}), sinks: map[frame.Type]io.Writer{frame.Stdout: e.Stdout, frame.Stderr: e.Stderr}}
	p.input = &stdin{process: p, credit: make(chan struct{}, 1), room: frame.StdinWindow}
	go p.follow()
	return p, nil
}

// follow takes init's frames until the process has ended.
func (p *Process) follow() {
	defer close(p.done)
	defer p.cancel()
	defer p.call.close()
	for {
		t, payload, err := p.call.next()
		if err != nil {
			p.err = err
			return
		}
		switch t {
		case frame.Stdout, frame.Stderr:
			if sink := p.sinks[t]; sink != nil {
				if _, err := sink.Write(payload); err != nil {
					p.err = fmt.Errorf("taking %s: %w", t, err)
					return
				}
			}
		case frame.Credit:
			m, _ := frame.Decode[frame.CreditMessage](payload)
			p.input.give(m.Bytes)
		case frame.Exit:
			m, _ := frame.Decode[frame.ExitMessage](payload)
			p.exit = Exit{Code: m.Code, Signal: syscall.Signal(m.Signal), TimedOut: m.TimedOut}
			return
		}
	}
}

// Wait returns after the process has ended and its output was written.
func (p *Process) Wait() (Exit, error) {
	<-p.done
	return p.exit, p.err
}

// Done is closed when Wait would return at once.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stdin writes to the process. Write waits for room, not longer than the process lives; Close ends the input.
func (p *Process) Stdin() io.WriteCloser { return p.input }

// Signal sends sig to the process group.
func (p *Process) Signal(sig syscall.Signal) error {
	return p.tell(frame.Signal, frame.SignalMessage{Signal: int(sig)})
}

// Resize changes the terminal.
func (p *Process) Resize(size Size) error { return p.tell(frame.Resize, size) }

// Cancel ends what the process started in its session, unless it was detached. Wait then returns context.Canceled.
func (p *Process) Cancel() { p.cancel() }

func (p *Process) tell(t frame.Type, m frame.Message) error {
	payload, err := frame.Encode(m)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	return p.write(t, payload)
}

func (p *Process) write(t frame.Type, payload []byte) error {
	p.send.Lock()
	defer p.send.Unlock()
	payload, err := p.call.fromHost(t, payload)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBadRequest, err)
	}
	return p.call.why(p.call.w.Send(t, payload))
}

// stdin keeps to the window, so that init never has to hold more than that.
type stdin struct {
	process *Process
	order   sync.Mutex // one Write or Close at a time

	mu     sync.Mutex
	room   int
	credit chan struct{} // holds one wake-up
}

func (in *stdin) give(n int) {
	in.mu.Lock()
	in.room += n
	in.mu.Unlock()
	select {
	case in.credit <- struct{}{}:
	default:
	}
}

// reserve waits until there is room and takes at most want of it.
func (in *stdin) reserve(want int) (int, error) {
	for {
		in.mu.Lock()
		n := min(want, in.room)
		in.room -= n
		in.mu.Unlock()
		if n > 0 {
			return n, nil
		}
		select {
		case <-in.credit:
		case <-in.process.done:
			return 0, io.ErrClosedPipe
		}
	}
}

// Write implements io.Writer.
func (in *stdin) Write(data []byte) (int, error) {
	in.order.Lock()
	defer in.order.Unlock()
	written := 0
	for written < len(data) {
		n, err := in.reserve(min(len(data)-written, frame.MaxPayload))
		if err != nil {
			return written, err
		}
		if err := in.process.write(frame.Stdin, data[written:written+n]); err != nil {
			return written, err
		}
		written += n
	}
	return written, nil
}

// Close implements io.Closer.
func (in *stdin) Close() error {
	in.order.Lock()
	defer in.order.Unlock()
	return in.process.write(frame.StdinClose, nil)
}
