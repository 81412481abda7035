package edge

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// openFiles has a process begin with so many files that it may have open, and no right to more.
func openFiles(t *testing.T, n int) func(*exec.Cmd) {
	t.Helper()
	exe, err := os.Open(program) // its folder may be closed to the process's uid
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exe.Close() })
	return func(cmd *exec.Cmd) {
		cmd.ExtraFiles = append(cmd.ExtraFiles, exe)
		self := fmt.Sprintf("/proc/self/fd/%d", 2+len(cmd.ExtraFiles))
		cmd.Args = append([]string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, n), self}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}
}

// crowd opens connections and says how many were let in: those that the edge does not reset.
func (w *town) crowd(t *testing.T, n int) (all []net.Conn, in int) {
	t.Helper()
	for range n {
		c, err := w.dial("tcp4", "198.18.0.16:8080")
		if err != nil {
			continue // reset before it was ours
		}
		all = append(all, c)
	}
	for _, c := range all {
		c.SetReadDeadline(time.Now().Add(300 * time.Millisecond)) // less than the edge waits for the first byte
		if _, err := c.Read(make([]byte, 1)); err != nil && os.IsTimeout(err) {
			in++
		}
	}
	return all, in
}

// frugal is an edge with few files to open, under a policy that allows good.test.
func (w *town) frugal(t *testing.T, files int) (*process, *store) {
	t.Helper()
	p := startProcess(t, w, edgeDir(t), openFiles(t, files))
	mux := link.NewMux()
	link.Handle(mux, role.EdgeName, func(context.Context, role.Name) (struct{}, error) { return struct{}{}, nil })
	p.equip(t, w, mux)
	shop := &store{}
	control := talk(t, p.supervisor, "control", shop.mux())
	if err := control.Call(t.Context(), feed.Policies, policy(1, "good.test"), nil); err != nil {
		t.Fatal(err)
	}
	w.lookup(t, "good.test")
	w.works(t, "at first")
	return p, shop
}

// works waits until a page comes.
func (w *town) works(t *testing.T, when string) {
	t.Helper()
	processtest.Await(t, "page "+when, func() bool {
		c, err := w.dial("tcp4", "198.18.0.16:8080")
		if err != nil {
			return false
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Second))
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: good.test:8080\r\nConnection: close\r\n\r\n")
		buf := make([]byte, 64)
		n, _ := c.Read(buf)
		return strings.HasPrefix(string(buf[:n]), "HTTP/1.1 200")
	})
}

// TestFewDescriptors: with few of them an org has its share and is told so beyond. It is as good as before once some are given back.
func TestFewDescriptors(t *testing.T) {
	w := newTown(t)
	_, shop := w.frugal(t, 200) // of these 72 are the orgs', and one of them has half
	all, in := w.crowd(t, 60)
	if in == 0 || in > 36 {
		t.Errorf("%d of 60 connections are let in, the share is 36", in)
	}
	processtest.Await(t, "record of the refusals", func() bool {
		return shop.has(func(d decisions.Decision) bool {
			return d.Verdict == "deny" && d.Reason == "budget" && strings.Contains(d.Guidance, "this machine can hold")
		}) > 0
	})
	for _, c := range all {
		c.Close()
	}
	w.works(t, "after the crowd left")
}

// TestNoDescriptors: with fewer than the edge keeps back for itself accepting fails, and nothing else. It goes on by itself.
func TestNoDescriptors(t *testing.T) {
	w := newTown(t)
	measured, _ := w.frugal(t, 200)
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", measured.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	measured.kill()
	p, _ := w.frugal(t, len(open)+12)
	// One that is refused holds its own until that is written down; many at once take all there are.
	processtest.Await(t, "line that says so", func() bool {
		w.rush(80)
		return strings.Contains(p.said(), "accepting connections")
	})
	w.works(t, "after none were left")
}

// rush opens connections at the same time, and gives them up.
func (w *town) rush(n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if c, err := w.dial("tcp4", "198.18.0.16:8080"); err == nil {
				c.Close()
			}
		})
	}
	all.Wait()
}
