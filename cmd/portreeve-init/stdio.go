package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"portreeve.dev/nodes/guest/frame"
)

// stdio is both ends of a process's three standard files: pipes, or one terminal.
type stdio struct {
	child   []uintptr // for the process; closed by init right after the start
	in, out *os.File  // the same file for a terminal
	err     *os.File  // nil for a terminal
}

func openStdio(m frame.ExecMessage) (*stdio, error) {
	s := &stdio{}
	if err := s.open(m); err != nil {
		s.closeChild()
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stdio) open(m frame.ExecMessage) (err error) {
	if m.TTY != nil {
		return s.openTerminal(*m.TTY)
	}
	if m.Stdin {
		if s.in, err = s.pipe(1); err != nil {
			return err
		}
	} else {
		null, err := syscall.Open("/dev/null", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening /dev/null: %w", err)
		}
		s.child = append(s.child, uintptr(null))
	}
	if s.out, err = s.pipe(0); err != nil {
		return err
	}
	s.err, err = s.pipe(0)
	return err
}

// pipe keeps end ours (0 reads, 1 writes), non-blocking for Go's poller, and gives the child the other one, which blocks as programs expect.
func (s *stdio) pipe(ours int) (*os.File, error) {
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	s.child = append(s.child, uintptr(p[1-ours]))
	if err := syscall.SetNonblock(p[ours], true); err != nil {
		syscall.Close(p[ours])
		return nil, err
	}
	return os.NewFile(uintptr(p[ours]), "pipe"), nil
}

// openTerminal makes the pair as the user, so that the user owns the slave's node without a chown.
func (s *stdio) openTerminal(size frame.Size) error {
	return asUser(func() error {
		master, err := syscall.Open("/dev/ptmx", syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
		if err != nil {
			return fmt.Errorf("opening /dev/ptmx: %w", err)
		}
		s.out = os.NewFile(uintptr(master), "terminal")
		s.in = s.out
		var unlock int32
		var number uint32
		if err := errors.Join(s.control(syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)), s.control(syscall.TIOCGPTN, unsafe.Pointer(&number))); err != nil {
			return err
		}
		slave, err := syscall.Open(fmt.Sprintf("/dev/pts/%d", number), syscall.O_RDWR|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening the terminal: %w", err)
		}
		s.child = []uintptr{uintptr(slave), uintptr(slave), uintptr(slave)}
		return s.resize(size)
	})
}

func (s *stdio) resize(size frame.Size) error {
	window := [4]uint16{size.Rows, size.Cols}
	return s.control(syscall.TIOCSWINSZ, unsafe.Pointer(&window))
}

func (s *stdio) control(request uintptr, arg unsafe.Pointer) error {
	raw, err := s.out.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	err = raw.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(arg))
	})
	if err == nil && errno != 0 {
		err = fmt.Errorf("terminal: %w", errno)
	}
	return err
}

func (s *stdio) closeChild() {
	for _, fd := range slices.Compact(s.child) {
		syscall.Close(int(fd))
	}
	s.child = nil
}

// closeInput tells the process that its input has ended: a terminal by its end-of-file character.
func (s *stdio) closeInput() {
	switch s.in {
	case nil:
	case s.out:
		s.in.Write([]byte{4})
	default:
		s.in.Close()
	}
}

// drainUntil bounds how long output is waited for.
func (s *stdio) drainUntil(end time.Time) {
	s.out.SetReadDeadline(end)
	s.err.SetReadDeadline(end) // a nil File only answers with an error
}

// close may be called again, also where a file is missing or was closed before: File's answer is only an error.
func (s *stdio) close() {
	for _, f := range []*os.File{s.in, s.out, s.err} {
		f.Close()
	}
}
