package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portreeve.dev/nodes/guest"
)

func TestRelay(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		ctx := within(t, 30*time.Second)
		if _, err := b.session.Relay(ctx, 18744); !errors.Is(err, guest.ErrRefused) {
			t.Errorf("nobody listens: %v", err)
		}
		do(t, b, shell("mkdir -p www; echo served > www/page"))
		server, err := b.client.Exec(ctx, guest.Exec{Argv: []string{"httpd", "-f", "-p", "127.0.0.1:18745", "-h", "/workspace/www"}})
		if err != nil {
			t.Fatal(err)
		}
		defer server.Cancel()
		var body string
		eventually(t, "the page comes", func() bool {
			conn, err := b.session.Relay(ctx, 18745)
			if err != nil {
				return false
			}
			defer conn.Close()
			fmt.Fprintf(conn, "GET /page HTTP/1.0\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			content, _ := io.ReadAll(resp.Body)
			body = string(content)
			return true
		})
		if body != "served\n" {
			t.Errorf("%q", body)
		}
	})
}

// ticking starts a process that writes a growing number into the file at path, and returns when one is there.
func ticking(t *testing.T, b *box, path string) *guest.Process {
	t.Helper()
	p, err := b.client.Exec(t.Context(), shell("i=0; while :; do i=$((i+1)); echo $i > "+path+"; echo $i; sleep 0.05; done"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := within(t, 30*time.Second)
	eventually(t, "it ticks", func() bool {
		now, err := readFile(ctx, b, path, 100)
		return err == nil && now != ""
	})
	return p
}

func TestProcessesOutliveTheHostsSide(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		p := ticking(t, b, "/tmp/tick")
		b.stop()
		<-b.served
		if _, err := p.Wait(); err == nil {
			t.Error("the exec ended well although its session is gone")
		}
		if err := errors.Join(b.serve(), b.ready()); err != nil {
			t.Fatal(err)
		}
		ctx := within(t, 30*time.Second)
		before, err := readFile(ctx, b, "/tmp/tick", 100)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "it goes on", func() bool {
			now, err := readFile(ctx, b, "/tmp/tick", 100)
			return err == nil && now != "" && now != before
		})
		do(t, b, shell("kill $(ps -o pid,args | grep '[t]mp/tick' | awk '{print $1}')"))
	})
}

func TestWakeFromCheckpoint(t *testing.T) {
	program, err := builtInit() // here the very binary that is shipped, small as it is
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSandbox(program)
	if err == nil {
		err = s.start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ticking(t, s.box, "/tmp/tick")
	var screen lockedBuffer
	terminal, err := s.client.Exec(t.Context(), guest.Exec{Argv: []string{"sh", "-c", "echo ready; exec sleep 3331"}, TTY: &guest.Size{Rows: 24, Cols: 80}, Stdout: &screen})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the terminal runs", func() bool { return strings.Contains(screen.String(), "ready") })
	hello, _ := s.session.Hello()

	image := filepath.Join(s.bundle, "image")
	if err := errors.Join(os.Mkdir(image, 0o700), s.run("checkpoint", "--image-path", image, s.id), s.run("delete", "--force", s.id)); err != nil {
		t.Fatal(err)
	}
	if _, err := terminal.Wait(); !errors.Is(err, guest.ErrUnavailable) {
		t.Errorf("an exec over a checkpoint: %v", err)
	}
	eventually(t, "the host notices", func() bool { _, there := s.session.Hello(); return !there })
	s.newID()
	if err := errors.Join(s.run("create", "--bundle", s.bundle, s.id), s.run("restore", "--image-path", image, "--detach", s.id), s.ready()); err != nil {
		t.Fatal(err)
	}
	if again, _ := s.session.Hello(); again != hello {
		t.Errorf("another init: %+v, was %+v", again, hello)
	}
	ctx := within(t, 30*time.Second)
	before, err := readFile(ctx, s.box, "/tmp/tick", 100)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it goes on", func() bool {
		now, err := readFile(ctx, s.box, "/tmp/tick", 100)
		return err == nil && now != "" && now != before
	})
	if n := running(t, s.box, "sleep 3331"); n != 1 {
		t.Errorf("%d processes on the old terminal, want 1", n)
	}
}

// TestCheckpointThatGoesOn: a checkpoint also cuts the connections of a sandbox that it leaves running.
func TestCheckpointThatGoesOn(t *testing.T) {
	program, err := builtInit()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSandbox(program)
	if err == nil {
		err = s.start()
	}
	if err != nil {
		t.Fatal(err)
	}
	hello, _ := s.session.Hello()
	image := filepath.Join(s.bundle, "image")
	if err := errors.Join(os.Mkdir(image, 0o700), s.run("checkpoint", "--leave-running", "--image-path", image, s.id)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "init is back", func() bool {
		_, err := s.session.Ping(within(t, time.Second))
		return err == nil
	})
	if again, _ := s.session.Hello(); again != hello {
		t.Errorf("another init: %+v, was %+v", again, hello)
	}
}

func TestUnavailable(t *testing.T) {
	session := guest.NewSession(guest.Config{Sandbox: "sbx_none"})
	if _, err := session.Ping(t.Context()); !errors.Is(err, guest.ErrUnavailable) {
		t.Error(err)
	}
}

// Cost watched: one stream, which is a connect by init and three frames.
func BenchmarkPing(b *testing.B) {
	for name, start := range map[string]func() (*box, error){"namespaces": plainBox, "gvisor": gvisorBox} {
		b.Run(name, func(b *testing.B) {
			box := get(b, start)
			for b.Loop() {
				if _, err := box.session.Ping(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Cost watched: fork, exec and the drain of the pipes, over both hops.
func BenchmarkExecEcho(b *testing.B) {
	for name, start := range map[string]func() (*box, error){"namespaces": plainBox, "gvisor": gvisorBox} {
		b.Run(name, func(b *testing.B) {
			box := get(b, start)
			for b.Loop() {
				var out bytes.Buffer
				p, err := box.client.Exec(context.Background(), guest.Exec{Argv: []string{"/bin/echo", "hello"}, Stdout: &out})
				if err != nil {
					b.Fatal(err)
				}
				if exit, err := p.Wait(); err != nil || exit.Code != 0 || out.String() != "hello\n" {
					b.Fatal(exit, err, out.String())
				}
			}
		})
	}
}

// Cost watched: the thread that takes the user's rights.
func BenchmarkStat(b *testing.B) {
	for name, start := range map[string]func() (*box, error){"namespaces": plainBox, "gvisor": gvisorBox} {
		b.Run(name, func(b *testing.B) {
			box := get(b, start)
			for b.Loop() {
				if _, err := box.client.Stat(context.Background(), "/workspace"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
