package e2e

import (
	"net/netip"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/lab"
)

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

func mustAddr(s string) netip.Addr { return netip.MustParseAddr(s) }

// TestProcessesComeBack kills each process under a living sandbox. Everything that works before works after, the sandbox and
// what runs in it are the same, and the names that it was given stay good: also when the node, which keeps them for the edge,
// was replaced in between.
func TestProcessesComeBack(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	ceiling(t, p, allow("good", "good.test"))
	b := armed(t, p)
	_, said := b.hostile("resolve", "good.test")
	addr := strings.TrimPrefix(said, "ok ")
	if !netip.MustParsePrefix("198.18.0.0/15").Contains(mustAddr(addr)) {
		t.Fatalf("good.test was given %s", said)
	}
	resolved := b.decided("allows the name", func(d decision) bool { return d.Layer == "dns" && d.Host == "good.test" })
	b.background("n=0; while :; do n=$((n+1)); echo $n >/tmp/count; sleep 0.1; done")
	before := b.view()
	for i, role := range []string{"edge", "node", "edge", "inward", "control", "ingress", "node", "inward"} {
		running := b.start("sh", "-c", "sleep 3; echo done")
		old, err := p.Kill(role, syscall.SIGKILL)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.AwaitRestart(role, old, 15*time.Second); err != nil {
			t.Fatal(err)
		}
		when := "after the death of " + role
		b.works(when, "true")
		arrived := len(l.Web.Requests("good.test"))
		b.works(when, "/workspace/hostile", "tls", addr+":443", "good.test", "good.test", "/")
		if n := len(l.Web.Requests("good.test")); n != arrived+1 {
			t.Errorf("%s: %d requests arrived, want 1", when, n-arrived)
		}
		first := count(t, b)
		if err := lab.Await(10*time.Second, "count that grows "+when, func() bool { return count(t, b) > first }); err != nil {
			t.Error(err)
		}
		if said := <-running; said.Stdout != "done\n" && role != "inward" && role != "control" {
			t.Errorf("%s a command that ran across it: %+v", when, said)
		}
		if now := b.view(); now != before {
			t.Errorf("%s the sandbox is %+v, it was %+v", when, now, before)
		}
		if i%2 == 1 { // a new one takes all of them
			if err := lab.Await(20*time.Second, "sandbox that is made "+when, func() bool {
				answer, err := p.API("POST", "/sandbox/create", map[string]any{"template": "tiny", "memory": "128Mi"})
				var v view
				if err != nil || answer.Status != 201 || answer.Into(&v) != nil {
					return false
				}
				call(t, p, "DELETE", "/sandbox/"+v.ID, nil, 200, nil)
				return true
			}); err != nil {
				t.Error(err)
			}
		}
	}
	lookups := 0
	for _, d := range b.decisions() {
		if d.Layer == "dns" && d.Host == "good.test" && d.Count == 0 { // what is asked for again at once is counted
			lookups++
		}
	}
	if lookups != 1 {
		t.Errorf("good.test was asked for %d times, want once (%s)", lookups, resolved.ID)
	}
	// The twin: an address of the range that was never given to this sandbox stands for no name, also now.
	if open, said := b.hostile("tls", mustAddr(addr).Next().String()+":443", "good.test", "good.test", "/"); open {
		t.Errorf("an address that was never given: %s", said)
	}
	b.decided("says no_name", func(d decision) bool { return d.Reason == "no_name" })
}

// start runs a command and returns its result once it is there; one with code -1 stands for an error.
func (b *box) start(argv ...string) <-chan result {
	done := make(chan result, 1)
	go func() {
		answer, err := b.p.API("POST", "/sandbox/"+b.ID+"/execute", map[string]any{"command": argv, "timeout": 60_000})
		r := result{Code: -1}
		if err != nil {
			r.Stderr = err.Error()
		} else if answer.Status != 200 || answer.Into(&r) != nil {
			r = result{Code: -1, Stderr: answer.String()}
		}
		done <- r
	}()
	return done
}

func count(t *testing.T, b *box) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(b.exec("cat", "/tmp/count").Stdout))
	if err != nil {
		return 0 // it was being written
	}
	return n
}

// TestDeadProcessesAnswerNobody: with its process gone a port is refused at once, and who waits for an answer gets an error.
func TestDeadProcessesAnswerNobody(t *testing.T) {
	t.Parallel()
	_, p := own(t)
	b := armed(t, p)
	ended := make(chan string, 1)
	go func() {
		answer, err := p.API("POST", "/sandbox/"+b.ID+"/execute", map[string]any{"command": []string{"sh", "-c", "echo started >/tmp/started; sleep 100"}, "timeout": 110_000})
		if err != nil {
			ended <- err.Error()
			return
		}
		ended <- answer.String()
	}()
	b.works("once the other has begun", "ls", "/tmp/started")
	if _, err := p.Kill("inward", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case said := <-ended:
		if strings.HasPrefix(said, "200 ") && strings.Contains(said, `"exit_code":0`) {
			t.Errorf("a command whose way out died: %s", said)
		}
	case <-time.After(10 * time.Second):
		t.Error("a command whose way out died still waits after ten seconds")
	}
	b.works("after it", "true")

	// A supervisor that stands still can't start anything again, so the port stays without a process.
	if _, err := p.Kill("supervisor", sigStop); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Kill("control", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var took time.Duration
	err := lab.Await(5*time.Second, "refusal", func() bool {
		start := time.Now()
		_, err := p.API("GET", "/sandboxes", nil)
		took = time.Since(start)
		return err != nil && strings.Contains(err.Error(), "refused")
	})
	if err != nil || took > 100*time.Millisecond {
		t.Errorf("the port of a dead process: %v, after %v", err, took)
	}
	if _, err := p.Kill("supervisor", sigCont); err != nil {
		t.Fatal(err)
	}
	b.works("once the supervisor goes on", "true")
}
