package kernel

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWallLetsDoorsAnswer: from a door's port the edge's uid answers, also on lo, and begins nothing.
func TestWallLetsDoorsAnswer(t *testing.T) {
	t.Parallel()
	const door, shut = 8444, 8445
	host := newNamespace(t)
	h := handleAt(t, host)
	if err := h.LinkSetUp(link(t, h, "lo")); err != nil {
		t.Fatal(err)
	}
	if err := WriteWall(host, Wall{Table: "portreeve_test", UID: edgeUID, Answers: []uint16{door}}); err != nil {
		t.Fatal(err)
	}
	as := func(uid int, do func() error) error {
		return inside(host, func() error {
			// One thread only: sockets carry the uid of the thread that made them.
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
				return e
			}
			return do()
		})
	}
	serve := func(uid int, port int) {
		t.Helper()
		err := as(uid, func() error {
			var config net.ListenConfig
			config.SetMultipathTCP(false)
			config.Control = reuse
			l, err := config.Listen(t.Context(), "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				return err
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					io.WriteString(c, "x")
					c.Close()
				}
			}()
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	serve(edgeUID, door)
	serve(edgeUID, shut)
	serve(0, 8080)
	dial := func(uid, from, to int) error {
		return as(uid, func() error {
			d := net.Dialer{Timeout: time.Second}
			d.SetMultipathTCP(false)
			if from != 0 {
				d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: from}
				d.Control = reuse
			}
			c, err := d.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", to))
			if err != nil {
				return err
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(2 * time.Second))
			_, err = io.ReadFull(c, make([]byte, 1))
			return err
		})
	}
	if err := dial(0, 0, door); err != nil {
		t.Errorf("the door does not answer: %v", err)
	}
	if err := dial(0, 0, shut); err == nil {
		t.Error("another port of the edge's answers on lo")
	}
	if err := dial(edgeUID, 0, 8080); err == nil {
		t.Error("the edge's uid reached lo")
	}
	if err := dial(edgeUID, door, 8080); err == nil {
		t.Error("the edge's uid reached lo from the door's port")
	} else if errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("the door's port could not be used: %v", err)
	}
	if err := dial(0, 0, 8080); err != nil {
		t.Errorf("root is kept from lo: %v", err)
	}
}

// reuse lets a connection begin at a port that is listened on.
func reuse(_, _ string, c syscall.RawConn) (err error) {
	cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	return errors.Join(cerr, err)
}
