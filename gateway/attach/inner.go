package attach

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// innerFile is the descriptor on which Run waits.
const innerFile = 3

// Inner prepares the namespaces that Run made and becomes the command. It returns only if that failed, and the exit code.
func Inner(argv []string) int {
	runtime.LockOSThread() // rights belong to threads
	err := inner(argv)
	var not *notFound
	if errors.As(err, &not) {
		fmt.Fprintf(os.Stderr, "portreeve: error: %v\n", err)
		return 127
	}
	fmt.Fprintf(os.Stderr, "portreeve: error: %v\n", err)
	return 126
}

type notFound struct{ err error }

func (n *notFound) Error() string { return n.err.Error() }

func inner(argv []string) error {
	f := os.NewFile(innerFile, "attach")
	conn, err := net.FileConn(f)
	if err != nil {
		return fmt.Errorf("%s is called by portreeve attach alone: %w", InnerCommand, err)
	}
	f.Close()
	unixConn, ok := conn.(*net.UnixConn)
	if !ok || len(argv) == 0 {
		return errors.New(InnerCommand + " is called by portreeve attach alone")
	}
	if err := prepare(unixConn); err != nil {
		_, _ = unixConn.Write([]byte(err.Error()))
		return err
	}
	path, err := exec.LookPath(argv[0])
	if err != nil {
		return &notFound{err}
	}
	if err := dropRights(); err != nil {
		return fmt.Errorf("dropping rights: %w", err)
	}
	return fmt.Errorf("running %q: %w", argv[0], unix.Exec(path, argv, os.Environ()))
}

// prepare makes what the command finds, and hands the listeners over.
func prepare(conn *net.UnixConn) error {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	if err := onlyLo(); err != nil {
		return err
	}
	if err := cover(); err != nil {
		return err
	}
	var fds []int
	var files []*os.File
	for _, addr := range []string{"127.0.0.1", "::1"} {
		l, err := net.Listen("tcp", net.JoinHostPort(addr, strconv.Itoa(Port)))
		if err != nil {
			if addr == "::1" { // no IPv6 here
				continue
			}
			return err
		}
		file, err := l.(*net.TCPListener).File()
		l.Close()
		if err != nil {
			return err
		}
		files, fds = append(files, file), append(fds, int(file.Fd()))
	}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	if _, _, err := conn.WriteMsgUnix([]byte("listeners"), unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 8))
	conn.Close()
	return err
}

// onlyLo looks once more: with any other link there would be another way.
func onlyLo() error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		// Tunnel devices of the kernel's own are in each new namespace, down and without a peer.
		if name := l.Attrs().Name; name != "lo" && l.Attrs().Flags&net.FlagUp != 0 {
			return fmt.Errorf("the namespace has the link %q", name)
		}
	}
	return nil
}

// covered are the directories in which services of the machine have their sockets: a resolver there would ask the network for the
// command. Its own files there are hidden with them.
var covered = []string{"/run", "/var/run"}

func cover() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keeping mounts to itself: %w", err)
	}
	for _, dir := range covered {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue // a link to the other, mostly
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m"); err != nil {
			return fmt.Errorf("covering %s: %w", dir, err)
		}
	}
	return nil
}
