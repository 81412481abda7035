package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/nodes/guest"
	"portreeve.dev/nodes/guest/frame"
)

// within bounds a test that must not hang; a hang is then an error of the call.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

type result struct {
	guest.Exit
	stdout, stderr string
}

func try(t testing.TB, b *box, e guest.Exec) (result, error) {
	t.Helper()
	var out, errs bytes.Buffer
	e.Stdout, e.Stderr = &out, &errs
	p, err := b.client.Exec(within(t, 30*time.Second), e)
	if err != nil {
		return result{}, err
	}
	exit, err := p.Wait()
	return result{exit, out.String(), errs.String()}, err
}

func do(t testing.TB, b *box, e guest.Exec) result {
	t.Helper()
	r, err := try(t, b, e)
	if err != nil {
		t.Fatalf("%q: %v", e.Argv, err)
	}
	return r
}

func shell(script string) guest.Exec { return guest.Exec{Argv: []string{"/bin/sh", "-c", script}} }

// eventually polls what the other side changes in its own time.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	ctx := within(t, 10*time.Second)
	for !f() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestUserProcessRights(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		r := do(t, b, shell(`cat /proc/self/status; echo "id: $(id -u):$(id -g):$(id -G)"; kill -9 1; echo "kill: $?"`))
		for _, want := range []string{
			"Uid:\t1001\t1001\t1001\t1001", "Gid:\t1001\t1001\t1001\t1001", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000",
			"CapEff:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "id: 1001:1001:1001\n", "kill: 1\n",
		} {
			if !strings.Contains(r.stdout, want) {
				t.Errorf("%q is missing in\n%s%s", want, r.stdout, r.stderr)
			}
		}
		if _, err := b.session.Ping(within(t, 5*time.Second)); err != nil {
			t.Errorf("init after a kill -9 by the user: %v", err)
		}
	})
}

func TestExitCodes(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		for script, want := range map[string]guest.Exit{
			"exit 0":         {},
			"exit 7":         {Code: 7},
			"kill -TERM $$":  {Code: 143, Signal: syscall.SIGTERM},
			"kill -KILL $$":  {Code: 137, Signal: syscall.SIGKILL},
			"exec true":      {},
			"no-such-binary": {Code: 127},
		} {
			if r := do(t, b, shell(script)); r.Exit != want {
				t.Errorf("%q: %+v, want %+v", script, r.Exit, want)
			}
		}
	})
}

func TestStartErrors(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		do(t, b, shell(`mkdir -p private/in && chmod 700 private; echo x > plain; echo 'echo $1' > noshebang; chmod 755 noshebang;
			printf '#!/no/such\n' > badshebang; chmod 755 badshebang; ln -sf /bin/echo private/tool`))
		for name, c := range map[string]struct {
			exec guest.Exec
			want error
		}{
			"missing by PATH":      {guest.Exec{Argv: []string{"nope"}}, guest.ErrNoCommand},
			"missing by path":      {guest.Exec{Argv: []string{"/bin/nope"}}, guest.ErrNoCommand},
			"missing interpreter":  {guest.Exec{Argv: []string{"./badshebang"}}, guest.ErrNoCommand},
			"not executable":       {guest.Exec{Argv: []string{"./plain"}}, guest.ErrNotExecutable},
			"a folder":             {guest.Exec{Argv: []string{"/bin"}}, guest.ErrNotExecutable},
			"no interpreter line":  {guest.Exec{Argv: []string{"./noshebang"}}, guest.ErrNotExecutable},
			"cwd missing":          {guest.Exec{Argv: []string{"true"}, Cwd: "/no/such"}, guest.ErrNoCwd},
			"cwd is a file":        {guest.Exec{Argv: []string{"true"}, Cwd: "/workspace/plain"}, guest.ErrNoCwd},
			"cwd for the user":     {guest.Exec{Argv: []string{"true"}, Cwd: "/workspace/private/in"}, nil},
			"relative program":     {guest.Exec{Argv: []string{"private/tool"}}, nil},
			"PATH of the caller":   {guest.Exec{Argv: []string{"tool"}, Env: map[string]string{"PATH": "/workspace/private"}}, nil},
			"NUL in argv":          {guest.Exec{Argv: []string{"a\x00b"}}, guest.ErrBadRequest},
			"arguments too long":   {guest.Exec{Argv: []string{"true", strings.Repeat("x", 70000)}}, guest.ErrTooLarge},
			"argv empty":           {guest.Exec{}, guest.ErrBadRequest},
			"relative cwd is fine": {guest.Exec{Argv: []string{"true"}, Cwd: "private"}, nil},
		} {
			if _, err := try(t, b, c.exec); !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
	})
}

func TestEnvironment(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		r := do(t, b, guest.Exec{Argv: []string{"sh", "-c", "env; pwd"}, Env: map[string]string{"LANG": "C", "X": "a=b c"}})
		for _, want := range []string{"HOME=/workspace\n", "USER=sandbox\n", "LANG=C\n", "X=a=b c\n", "FLAVOUR=plain\n", "\n/workspace\n"} {
			if !strings.Contains("\n"+r.stdout, want) {
				t.Errorf("%q is missing in\n%s", want, r.stdout)
			}
		}
		if strings.Contains(r.stdout, "PORTREEVE_ENV_") || strings.Contains(r.stdout, "TERM=") {
			t.Errorf("too much in\n%s", r.stdout)
		}
	})
}

func TestStreamsAreWhole(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		content := make([]byte, 3<<20+17)
		rand.New(rand.NewSource(1)).Read(content)
		var out bytes.Buffer
		p, err := b.client.Exec(within(t, 60*time.Second), guest.Exec{Argv: []string{"cat"}, Stdin: true, Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := p.Stdin().Write(content); n != len(content) || err != nil {
			t.Fatalf("stdin: %d, %v", n, err)
		}
		p.Stdin().Close()
		if exit, err := p.Wait(); err != nil || exit.Code != 0 {
			t.Fatal(exit, err)
		}
		if !bytes.Equal(out.Bytes(), content) {
			t.Errorf("%d bytes came back from %d, or others", out.Len(), len(content))
		}
	})
}

// blocked is a reader of output that takes nothing before it is told to.
type blocked struct {
	release chan struct{}
	n       int
}

func (b *blocked) Write(p []byte) (int, error) {
	<-b.release
	b.n += len(p)
	return len(p), nil
}

func TestOutputIsHeldBackAndKept(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		out := &blocked{release: make(chan struct{})}
		p, err := b.client.Exec(within(t, 60*time.Second), guest.Exec{
			Argv: []string{"sh", "-c", "dd if=/dev/zero bs=65536 count=64 2>/dev/null; echo > /tmp/written"}, Stdout: out})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.client.Stat(within(t, 5*time.Second), "/tmp/written"); !errors.Is(err, guest.ErrNotFound) {
			t.Errorf("the process wrote 4 MiB although nobody reads: %v", err)
		}
		close(out.release)
		if exit, err := p.Wait(); err != nil || exit.Code != 0 || out.n != 4<<20 {
			t.Errorf("%+v, %v, %d bytes", exit, err, out.n)
		}
		do(t, b, shell("rm -f /tmp/written"))
	})
}

func TestSignalPassesUnreadInput(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		p, err := b.client.Exec(within(t, 30*time.Second), guest.Exec{Argv: []string{"sleep", "1000"}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		var writer sync.WaitGroup
		var taken atomic.Int64
		writer.Go(func() {
			for range 64 {
				n, _ := p.Stdin().Write(make([]byte, 16<<10))
				taken.Add(int64(n))
			}
		})
		eventually(t, "the window is full", func() bool { return taken.Load() >= frame.StdinWindow })
		if n := taken.Load(); n > 512<<10 {
			t.Errorf("%d bytes went into a process that reads nothing", n)
		}
		if err := p.Signal(syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		exit, err := p.Wait()
		writer.Wait()
		if err != nil || exit.Signal != syscall.SIGUSR1 {
			t.Errorf("%+v, %v", exit, err)
		}
	})
}

func TestExitDoesNotWaitForPipes(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		start := time.Now()
		r := do(t, b, shell("sleep 777 & echo started"))
		if took := time.Since(start); took > 5*time.Second || r.stdout != "started\n" {
			t.Errorf("%q after %v", r.stdout, took)
		}
		if got := running(t, b, "sleep 777"); got != 1 {
			t.Errorf("%d background processes, want 1 that lives on", got)
		}
		do(t, b, shell("killall sleep"))
	})
}

// running counts the processes of the sandbox with that command line.
func running(t testing.TB, b *box, command string) int {
	t.Helper()
	r := do(t, b, shell(`for f in /proc/[0-9]*/cmdline; do tr '\0' ' ' < $f 2>/dev/null; echo; done`))
	n := 0
	for line := range strings.Lines(r.stdout) {
		if strings.TrimSpace(line) == command {
			n++
		}
	}
	return n
}

func TestCancelKillsSession(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		for _, detach := range []bool{false, true} {
			command := "sleep 5551"
			if detach {
				command = "sleep 5552"
			}
			var out lockedBuffer
			e := shell("set -m; " + command + " & " + command + "; echo never") // job control, which needs a terminal: each job is a group
			e.Stdout, e.Detach, e.TTY = &out, detach, &guest.Size{Rows: 24, Cols: 80}
			p, err := b.client.Exec(within(t, 30*time.Second), e)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "both sleeps run", func() bool { return running(t, b, command) == 2 })
			p.Cancel()
			if _, err := p.Wait(); !errors.Is(err, context.Canceled) {
				t.Errorf("wait after cancel: %v", err)
			}
			if !detach {
				eventually(t, "cancelled processes are gone", func() bool { return running(t, b, command) == 0 })
				continue
			}
			do(t, b, shell("true"))
			if n := running(t, b, command); n != 2 {
				t.Errorf("%d detached processes, want 2", n)
			}
			do(t, b, shell("killall sleep"))
		}
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func TestTimeout(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		e := shell("trap '' TERM; sleep 4441 & echo on; sleep 4441")
		e.Timeout = 2 * time.Second // in which its shell says something
		r := do(t, b, e)
		if !r.TimedOut || r.Code != 137 || r.stdout != "on\n" {
			t.Errorf("%+v", r)
		}
		eventually(t, "the timed out are gone", func() bool { return running(t, b, "sleep 4441") == 0 })
		e = shell("echo on")
		e.Timeout = 20 * time.Second
		if r := do(t, b, e); r.TimedOut || r.Code != 0 {
			t.Errorf("in time: %+v", r)
		}
	})
}

func TestZombiesAreReaped(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		do(t, b, shell("for i in 1 2 3 4 5 6 7 8; do (sh -c 'sleep 0.1 &') ; done"))
		eventually(t, "only init is left", func() bool {
			pong, err := b.session.Ping(within(t, 5*time.Second))
			return err == nil && pong.Processes == 1
		})
	})
}

func TestTerminal(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		var out lockedBuffer
		p, err := b.client.Exec(within(t, 30*time.Second), guest.Exec{
			Argv: []string{"sh", "-c", "tty; stty size; stat -c %u $(tty); echo TERM=$TERM; read x; stty size; echo got $x; cat; echo end"},
			TTY:  &guest.Size{Rows: 33, Cols: 99}, Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the terminal is described", func() bool { return strings.Contains(out.String(), "TERM=xterm-256color") })
		for _, want := range []string{"/dev/pts/", "33 99\r\n", "\r\n1001\r\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%q is missing in %q", want, out.String())
			}
		}
		if err := p.Resize(guest.Size{Rows: 44, Cols: 111}); err != nil {
			t.Fatal(err)
		}
		io.WriteString(p.Stdin(), "line\n")
		eventually(t, "the new size is seen", func() bool { return strings.Contains(out.String(), "44 111\r\ngot line") })
		p.Stdin().Close()
		if exit, err := p.Wait(); err != nil || exit.Code != 0 || !strings.HasSuffix(out.String(), "end\r\n") {
			t.Errorf("%+v, %v, %q", exit, err, out.String())
		}
	})
}

func TestTerminalInterrupt(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		var out lockedBuffer
		p, err := b.client.Exec(within(t, 30*time.Second), guest.Exec{
			Argv: []string{"sh", "-c", "echo on; sleep 1000"}, TTY: &guest.Size{Rows: 24, Cols: 80}, Stdout: &out})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "it runs", func() bool { return strings.Contains(out.String(), "on") })
		io.WriteString(p.Stdin(), "\x03")
		if exit, err := p.Wait(); err != nil || exit.Code != 130 {
			t.Errorf("%+v, %v", exit, err)
		}
	})
}

func TestManyAtOnce(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				r, err := try(t, b, shell("echo "+strconv.Itoa(i)))
				if err != nil || r.stdout != strconv.Itoa(i)+"\n" {
					t.Errorf("%d: %q, %v", i, r.stdout, err)
				}
			})
		}
		all.Wait()
	})
}
