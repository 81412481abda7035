package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/role"
)

// patience is how long a test waits for what should take milliseconds.
const patience = processtest.Patience

// newProcess is one that the supervisor would run, with a broker of its own.
func newProcess(t *testing.T, j job) *process {
	t.Helper()
	j.binary = program
	log := slog.New(slog.DiscardHandler)
	return &process{job: j, broker: newBroker(log, func() {}), logDir: t.TempDir(), log: log, up: make(chan struct{})}
}

// start runs it until the test ends.
func start(t *testing.T, p *process) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-p.up:
	case err := <-ended:
		ended <- nil
		said, _ := os.ReadFile(filepath.Join(p.logDir, p.job.name+".log"))
		t.Fatalf("it did not start: %v\n%s", err, said)
	case <-time.After(patience):
		t.Fatal("it did not start")
	}
}

// freeAddr is one that nobody listens on.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// greeted connects and returns the pid that it was greeted with; the connection stays open until the test ends.
func greeted(t *testing.T, addr string) (int, error) {
	t.Helper()
	c, err := net.DialTimeout("tcp4", addr, patience)
	if err != nil {
		return 0, err
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line))
}

func TestListenerOfADeadProcessRefuses(t *testing.T) {
	addr := freeAddr(t)
	dead, again, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	p := newProcess(t, job{name: Control, args: []string{asChild, "greet"}, uid: ControlUID,
		prepare: func(restart bool) (any, []*os.File, error) {
			for _, turn := range []chan struct{}{dead, again} { // the test looks between two lives
				if !restart {
					break
				}
				select {
				case turn <- struct{}{}:
				case <-over:
				}
			}
			f, err := listenFile(addr)
			return struct{}{}, []*os.File{f}, err
		}})
	start(t, p)
	t.Cleanup(func() { close(over) })
	for range 5 {
		pid, err := greeted(t, addr)
		if err != nil || pid != p.current() {
			t.Fatalf("while it lives: greeted by %d, which is not %d: %v", pid, p.current(), err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		select {
		case <-dead:
		case <-time.After(patience):
			t.Fatal("its death was not noticed")
		}
		if c, err := net.DialTimeout("tcp4", addr, time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			if err == nil {
				c.Close()
			}
			t.Fatalf("connecting while it is dead: %v, want a refusal", err)
		}
		<-again
		processtest.Await(t, "a new one", func() bool { now := p.current(); return now != 0 && now != pid })
	}
}

func TestFirstStartThatFailsIsTheEnd(t *testing.T) {
	p := newProcess(t, job{name: Edge, args: []string{asChild, "refuse"}, uid: EdgeUID,
		prepare: func(bool) (any, []*os.File, error) { return struct{}{}, nil, nil }})
	if err := p.run(t.Context()); err == nil || !strings.Contains(err.Error(), "starting edge: this one does not want to") {
		t.Fatalf("ended with %v", err)
	}
}

func TestProcessWithoutSupervisorEnds(t *testing.T) {
	addr := freeAddr(t)
	p := newProcess(t, job{name: Ingress, args: []string{asChild, "greet"}, uid: IngressUID,
		prepare: func(bool) (any, []*os.File, error) {
			f, err := listenFile(addr)
			return struct{}{}, []*os.File{f}, err
		}})
	cmd, conn, err := p.spawn()
	if err != nil {
		t.Fatal(err)
	}
	go conn.Run(context.Background())
	if err := p.serve(t.Context(), cmd.Process.Pid, conn, false); err != nil {
		t.Fatal(err)
	}
	if _, err := greeted(t, addr); err != nil {
		t.Fatal(err)
	}
	conn.Close() // as it closes when the supervisor dies
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(patience):
		cmd.Process.Kill()
		t.Fatal("it goes on")
	}
}

func TestSiblingsAreIntroducedEachTimeOneIsNew(t *testing.T) {
	plain := func(bool) (any, []*os.File, error) { return struct{}{}, nil, nil }
	control := newProcess(t, job{name: Control, args: []string{asChild, "peers"}, uid: ControlUID, prepare: plain})
	edge := newProcess(t, job{name: Edge, args: []string{asChild, "peers"}, uid: EdgeUID, prepare: plain})
	ingress := newProcess(t, job{name: Ingress, args: []string{asChild, "peers"}, uid: IngressUID, prepare: plain})
	for _, p := range []*process{edge, ingress} {
		p.broker, p.logDir = control.broker, control.logDir
	}
	for _, p := range []*process{control, edge, ingress} {
		start(t, p)
	}
	met := func(p *process, peer string, pid int) func() bool {
		return func() bool { return p.hasLogged(t, "met", peer, pid) }
	}
	processtest.Await(t, "edge at control", met(control, Edge, edge.current()))
	processtest.Await(t, "control at edge", met(edge, Control, control.current()))
	processtest.Await(t, "ingress at control", met(control, Ingress, ingress.current()))
	old := edge.current()
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	processtest.Await(t, "a new edge", func() bool { now := edge.current(); return now != 0 && now != old })
	processtest.Await(t, "the new edge at control", met(control, Edge, edge.current()))
	if ingress.hasLogged(t, "met", Edge, old) || ingress.hasLogged(t, "met", Edge, edge.current()) || edge.hasLogged(t, "met", Ingress, ingress.current()) {
		t.Error("edge and ingress met: they have nothing to tell each other")
	}
}

// hasLogged looks for a line of a process that met another.
func (p *process) hasLogged(t *testing.T, message, peer string, pid int) bool {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(p.logDir, p.job.name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		var l struct {
			Msg  string
			Peer string
			Pid  int
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Msg == message && l.Peer == peer && l.Pid == pid {
			return true
		}
	}
	return false
}

func TestUnaskedFilesOfAChildAreClosed(t *testing.T) {
	s := &Supervisor{}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	body, _ := json.Marshal(role.Caged{LandlockABI: 5, Checked: []string{"x"}})
	if err := s.caged(Edge)(body, []*os.File{w}); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, os.ErrClosed) {
		t.Error("a file that came with an answer is kept")
	}
	if got := s.status.Cages[Edge]; got.LandlockABI != 5 || len(got.Checked) != 1 {
		t.Errorf("kept %+v", got)
	}
}
