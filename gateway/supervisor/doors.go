package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"portreeve.dev/gateway/config"
	"portreeve.dev/gateway/role"
)

// edgeDoors reads what the edge can't read for itself.
func edgeDoors(d config.Doors) (role.EdgeDoors, error) {
	doors := role.EdgeDoors{HTTP: d.HTTP != "", SOCKS: d.SOCKS != "", Name: d.Name}
	if d.Certificate == "" {
		return doors, nil
	}
	certificate, err := os.ReadFile(d.Certificate)
	if err != nil {
		return doors, fmt.Errorf("egress.doors.certificate: %w", err)
	}
	key, err := os.ReadFile(d.Key)
	if err != nil {
		return doors, fmt.Errorf("egress.doors.key: %w", err)
	}
	doors.Certificate, doors.Key = string(certificate), string(key)
	return doors, nil
}

// doorListeners makes the listeners of the doors, to be handed to the edge.
func doorListeners(d config.Doors) (files []*os.File, err error) {
	for _, addr := range []string{d.HTTP, d.SOCKS} {
		if addr == "" {
			continue
		}
		f, err := listenFileAs(addr, EdgeUID)
		if err != nil {
			closeAll(files)
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// listenFileAs is listenFile for a process that a wall stands around: the kernel remembers who made a socket, and a listener can
// be turned into one that connects. So this one is made in the name of uid, and the wall holds for it.
func listenFileAs(addr string, uid uint32) (*os.File, error) {
	type made struct {
		f   *os.File
		err error
	}
	done := make(chan made)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its changed identity
		f, err := listenAs(addr, uid)
		done <- made{f, err}
	}()
	m := <-done
	if m.err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, m.err)
	}
	return m.f, nil
}

func listenAs(addr string, uid uint32) (*os.File, error) {
	if _, err := unix.SetfsuidRetUid(int(uid)); err != nil {
		return nil, err
	}
	if now, _ := unix.SetfsuidRetUid(-1); uint32(now) != uid { // the call reports no failure otherwise
		return nil, errors.New("the thread's identity could not be changed")
	}
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	l, err := config.Listen(context.Background(), "tcp", addr)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.(*net.TCPListener).File()
}
