package lab

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A Namespace is a named network namespace, known to ip(8) under its name.
type Namespace struct {
	Name   string
	handle netns.NsHandle
}

// newNamespace makes a namespace with lo up and forwarding off: a new one may inherit the machine's setting.
func newNamespace(name string) (*Namespace, error) {
	n := &Namespace{Name: name, handle: netns.None()}
	err := onThread(func() error {
		handle, err := netns.NewNamed(name) // moves this thread into it
		if err != nil {
			return err
		}
		n.handle = handle
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return err
		}
		return setSysctl("net/ipv4/ip_forward", "0")
	})
	if err != nil {
		n.remove()
		return nil, fmt.Errorf("making netns %q: %w", name, err)
	}
	return n, nil
}

// Do calls f on a thread inside the namespace. Sockets that f makes stay in it for good; f must not start a goroutine
// that makes one.
func (n *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("entering netns %q: %w", n.Name, err)
		}
		return f()
	})
}

// DialAs dials an address literal from the gateway namespace as uid, and says whether it was reached.
func (l *Lab) DialAs(uid int, address string) error {
	return l.Gateway.Do(func() error {
		// One thread only, which ends with this: sockets carry the uid of the thread that made them.
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
			return e
		}
		c, err := net.DialTimeout("tcp", address, 2*time.Second)
		if err == nil {
			c.Close()
		}
		return err
	})
}

// Listen listens inside the namespace.
func (n *Namespace) Listen(network, address string) (l net.Listener, err error) {
	err = n.Do(func() error { l, err = net.Listen(network, address); return err })
	return l, err
}

// ListenPacket is Listen for datagrams.
func (n *Namespace) ListenPacket(network, address string) (c net.PacketConn, err error) {
	err = n.Do(func() error { c, err = net.ListenPacket(network, address); return err })
	return c, err
}

// netlink returns a handle whose requests are about the namespace.
func (n *Namespace) netlink() (*netlink.Handle, error) {
	return netlink.NewHandleAt(n.handle, unix.NETLINK_ROUTE)
}

func (n *Namespace) remove() error {
	if n == nil {
		return nil
	}
	if n.handle.IsOpen() {
		n.handle.Close()
	}
	return netns.DeleteNamed(n.Name)
}

// onThread calls f on a thread of its own that ends with it, so no other goroutine ever runs where f went.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// setSysctl writes a setting of the calling thread's namespace.
func setSysctl(name, value string) error {
	return os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644)
}
