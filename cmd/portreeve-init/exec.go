package main

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"portreeve.dev/nodes/guest/frame"
)

const (
	chunk      = 32 << 10
	drainTime  = 250 * time.Millisecond // for output of a process that has ended, while others hold its pipes
	drainBytes = 1 << 20                // the largest pipe
)

// execution is one process with the stream it belongs to.
type execution struct {
	*stream
	stdio  *stdio
	proc   *process
	input  *input
	tty    bool
	detach bool
	cancel chan struct{} // closed by hear when the caller is gone
}

// exec runs one process until it has ended, and longer than its stream if the stream breaks.
func (st *stream) exec(m frame.ExecMessage) {
	x, err := st.start(m)
	if err != nil {
		st.fail(err)
		return
	}
	defer x.stdio.close()
	x.run(time.Duration(m.TimeoutMS) * time.Millisecond)
}

func (st *stream) start(m frame.ExecMessage) (*execution, error) {
	if n := len(pids()); n > maxProcesses {
		return nil, fault(frame.CodeProcessLimit, "%d processes are running", n)
	}
	env := environment(st.defaults, m)
	path, dir, err := lookup(m, env["PATH"])
	if err != nil {
		return nil, err
	}
	std, err := openStdio(m)
	if err != nil {
		return nil, err
	}
	proc, err := st.table.start(path, m.Argv, list(env), dir, std.child, m.TTY != nil)
	std.closeChild()
	if err != nil {
		std.close()
		return nil, startFault(m.Argv[0], err)
	}
	return &execution{stream: st, stdio: std, proc: proc, input: newInput(), tty: m.TTY != nil, detach: m.Detach, cancel: make(chan struct{})}, nil
}

func startFault(name string, err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return fault(frame.CodeNoCommand, "%s: command or its interpreter not found", name)
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOEXEC), errors.Is(err, syscall.EPERM):
		return fault(frame.CodeNotExecutable, "%s: %v", name, err)
	case errors.Is(err, syscall.E2BIG):
		return fault(frame.CodeBadRequest, "arguments and environment are too long")
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return fault(frame.CodeProcessLimit, "%v", err)
	}
	return err
}

func (x *execution) run(timeout time.Duration) {
	x.w.SendMessage(frame.Started, frame.StartedMessage{PID: x.proc.pid})
	var outputs, others sync.WaitGroup
	outputs.Go(func() { x.copyOut(x.stdio.out, frame.Stdout) })
	if x.stdio.err != nil {
		outputs.Go(func() { x.copyOut(x.stdio.err, frame.Stderr) })
	}
	others.Go(x.feed)
	others.Go(x.hear)

	timedOut := x.wait(timeout)

	x.stdio.drainUntil(time.Now().Add(drainTime))
	outputs.Wait()
	x.w.SendMessage(frame.Exit, exitMessage(x.proc.status, timedOut))
	x.conn.CloseWrite()
	x.conn.SetReadDeadline(time.Now().Add(lingerTime)) // ends hear at the latest
	x.input.close()
	x.stdio.close() // ends feed, if it hangs in a write
	others.Wait()
	x.conn.Close()
}

// wait returns when the process itself has ended, whoever else still holds its pipes.
func (x *execution) wait(timeout time.Duration) (timedOut bool) {
	var expired <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		expired = timer.C
	}
	cancel := x.cancel
	for {
		select {
		case <-x.proc.done:
			return timedOut
		case <-expired:
			timedOut = true
			x.table.killSession(x.proc)
		case <-cancel:
			cancel = nil
			x.table.killSession(x.proc)
		}
	}
}

func exitMessage(status syscall.WaitStatus, timedOut bool) frame.ExitMessage {
	if status.Signaled() {
		n := int(status.Signal())
		return frame.ExitMessage{Code: 128 + n, Signal: n, TimedOut: timedOut}
	}
	return frame.ExitMessage{Code: status.ExitStatus(), TimedOut: timedOut}
}

// copyOut sends what the process writes. When the stream is gone it reads on, so that the process doesn't block or break.
func (x *execution) copyOut(f *os.File, t frame.Type) {
	buf := make([]byte, chunk)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			x.w.Send(t, buf[:n])
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			x.sweep(f, t, buf)
			return
		}
		if err != nil { // EOF; EIO of a terminal that nobody holds
			return
		}
	}
}

// sweep sends what is left in a pipe when the time to drain it was spent waiting for a slow host.
func (x *execution) sweep(f *os.File, t frame.Type, buf []byte) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		for total := 0; total < drainBytes; {
			n, err := syscall.Read(int(fd), buf)
			if err == syscall.EINTR {
				continue
			}
			if n <= 0 {
				return
			}
			x.w.Send(t, buf[:n])
			total += n
		}
	})
}

// hear follows the host's frames. It never blocks on the process, so that Signal and Cancel always get through.
func (x *execution) hear() {
	for {
		t, payload, err := x.r.Next(frame.MaxPayload)
		if err == nil {
			err = x.obey(t, payload)
		}
		if err != nil {
			x.lost()
			return
		}
	}
}

func (x *execution) obey(t frame.Type, payload []byte) error {
	switch t {
	case frame.Stdin:
		return x.input.add(payload)
	case frame.StdinClose:
		x.input.close()
		return nil
	case frame.Resize:
		size, err := frame.Decode[frame.Size](payload)
		if err == nil && x.tty {
			err = x.stdio.resize(size)
		}
		return err
	case frame.Signal:
		m, err := frame.Decode[frame.SignalMessage](payload)
		if err == nil {
			x.table.signal(x.proc, syscall.Signal(m.Signal))
		}
		return err
	case frame.Cancel:
		if !x.detach {
			close(x.cancel)
		}
		return io.EOF
	}
	return fault(frame.CodeBadRequest, "unexpected %s", t)
}

// lost goes on without a host. Input ends, but a terminal stays open: a hang-up would end what runs in it.
func (x *execution) lost() {
	x.conn.Close()
	x.release()
	if !x.tty {
		x.input.close()
	}
}

// feed writes stdin and gives credit for what the process took.
func (x *execution) feed() {
	buf := make([]byte, chunk)
	for {
		n, more := x.input.take(buf)
		if n > 0 {
			x.stdio.in.Write(buf[:n]) // if nobody reads any more, the rest is dropped
			x.w.SendMessage(frame.Credit, frame.CreditMessage{Bytes: n})
		}
		if !more {
			x.stdio.closeInput()
			return
		}
	}
}
