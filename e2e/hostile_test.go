package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// TestHostileInitEndsItsOwnSandboxOnly puts another program in the place of process 1. Whatever it says, others are served as
// before by the same processes, which hold no more memory than they should.
func TestHostileInitEndsItsOwnSandboxOnly(t *testing.T) {
	t.Parallel()
	_, p := own(t)
	other := sandbox(t, p)
	program, err := hostileProgram()
	if err != nil {
		t.Fatal(err)
	}
	inits, err := filepath.Glob(filepath.Join(p.State, "guest", "*", "init"))
	if err != nil || len(inits) != 1 {
		t.Fatalf("the programs called init are %v, %v", inits, err)
	}
	bad := inits[0] + ".bad"
	if err := os.WriteFile(bad, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(bad, inits[0]); err != nil {
		t.Fatal(err)
	}
	before := p.PIDs()
	create := func(mode string) (lab.Answer, time.Duration) {
		start := time.Now()
		answer, err := p.API("POST", "/sandbox/create", map[string]any{"template": "tiny", "memory": "256Mi", "env": map[string]string{"MODE": mode}})
		if err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		return answer, time.Since(start)
	}
	// These never get through the door, and are gone at once.
	if answer, took := create("garbage"); answer.Status < 500 || took > 20*time.Second {
		t.Errorf("garbage: %v after %v", answer, took)
	}
	// These begin well. What they do later ends them, or is of no use to them.
	for _, mode := range []string{"frames", "flood", "liar"} {
		var v view
		answer, _ := create(mode)
		if answer.Status != 201 {
			if mode != "frames" { // may be faster than the answer
				t.Errorf("%s: %v", mode, answer)
			}
			continue
		}
		if err := answer.Into(&v); err != nil {
			t.Fatal(err)
		}
		b := &box{t, p, v.ID}
		switch mode {
		case "frames":
			if err := lab.Await(20*time.Second, "end of a sandbox with endless frames", func() bool { return b.view().Status == "error" }); err != nil {
				t.Errorf("%v: %+v", err, b.view())
			}
		case "flood":
			other.works("beside a flood of connections", "true")
		case "liar":
			start := time.Now()
			answer, err := p.API("POST", "/sandbox/"+v.ID+"/execute", map[string]any{"command": []string{"true"}, "timeout": 2000})
			if err != nil || answer.Status == 200 && !strings.Contains(string(answer.Body), `"stdout_truncated":true`) || time.Since(start) > 30*time.Second {
				t.Errorf("endless output: %d %.200s, %v, after %v", answer.Status, answer.Body, err, time.Since(start))
			}
		}
		for _, role := range []string{"inward", "control"} {
			if kib := memoryOf(t, before[role]); kib > 300<<10 {
				t.Errorf("%s: %s holds %d KiB", mode, role, kib)
			}
		}
		if answer, err := p.API("DELETE", "/sandbox/"+v.ID, nil); err != nil || answer.Status != 200 {
			t.Errorf("deleting it, %s: %v %v", mode, answer, err)
		}
	}
	if r := other.exec("true"); r.Code != 0 {
		t.Errorf("another sandbox, after: %+v", r)
	}
	if after := p.PIDs(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the processes were %v, they are %v", before, after)
	}
}

// memoryOf is what a process has in memory, in KiB.
func memoryOf(t *testing.T, pid int) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSuffix(procStatus(t, pid)["VmRSS"], " kB"))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestUserCannotHarmInit: what a user process does to process 1 and to the sentry below it stays in its sandbox.
func TestUserCannotHarmInit(t *testing.T) {
	_, p := shared(t)
	victim, other := sandbox(t, p, "memory", "1Gi"), sandbox(t, p)
	for _, command := range []string{"kill -9 1", "kill -STOP 1", "kill -9 -1"} {
		victim.exec("sh", "-c", command)
		victim.works("after "+command, "true")
	}
	victim.exec("sh", "-c", "for i in $(seq 300); do sleep 100 & done >/dev/null 2>&1")
	other.works("beside a sandbox full of processes", "true")
	victim.exec("killall", "sleep")
	victim.works("once they are gone", "true")
	// From outside: the sentry itself dies.
	if r := p.Runsc("kill", victim.view().RunscID, "KILL"); r.Code != 0 {
		t.Fatalf("killing the sandbox: %v", r)
	}
	if err := lab.Await(20*time.Second, "end of the killed sandbox", func() bool { return victim.view().Status == "error" }); err != nil {
		t.Error(err)
	}
	if v := victim.view(); v.Reason != "exited" {
		t.Errorf("its reason is %s", v.Reason)
	}
	if r := other.exec("true"); r.Code != 0 {
		t.Errorf("another sandbox, after: %+v", r)
	}
	if _, err := p.Kill("inward", syscall.Signal(0)); err != nil {
		t.Error(err)
	}
}

// TestOutputHasABound: a command that never stops talking gets a bounded answer, and a client that goes away ends it.
func TestOutputHasABound(t *testing.T) {
	_, p := shared(t)
	b := sandbox(t, p)
	var r struct {
		result
		Truncated bool `json:"stdout_truncated"`
		TimedOut  bool `json:"timed_out"`
	}
	call(t, p, "POST", "/sandbox/"+b.ID+"/execute", map[string]any{"command": []string{"yes"}, "timeout": 2000}, 200, &r)
	if len(r.Stdout) != 1<<20 || !r.Truncated || !r.TimedOut {
		t.Errorf("%d bytes, truncated %v, timed out %v, code %d", len(r.Stdout), r.Truncated, r.TimedOut, r.Code)
	}
	if left := b.exec("sh", "-c", "ps | grep -c '[y]es$'"); strings.TrimSpace(left.Stdout) != "0" {
		t.Errorf("what timed out goes on: %+v", left)
	}
}

// TestOutOfMemoryIsCalledThat: the sandbox ends, its row and the command that did it say why.
func TestOutOfMemoryIsCalledThat(t *testing.T) {
	_, p := shared(t)
	b, other := sandbox(t, p, "memory", "128Mi"), sandbox(t, p)
	answer, err := p.API("POST", "/sandbox/"+b.ID+"/execute", map[string]any{"command": []string{"sh", "-c", "tail /dev/zero"}, "timeout": 30_000})
	if err != nil || answer.Status == 200 || !strings.Contains(string(answer.Body), "out_of_memory") {
		t.Errorf("the command that did it: %v %v", answer, err)
	}
	err = lab.Await(30*time.Second, "an end by memory", func() bool {
		v := b.view()
		return v.Status == "error" && v.Reason == "out_of_memory"
	})
	if err != nil {
		t.Errorf("%v: %+v", err, b.view())
	}
	if answer, err := p.API("POST", "/sandbox/"+b.ID+"/execute", map[string]any{"command": []string{"true"}}); err != nil || answer.Status != 409 || !strings.Contains(string(answer.Body), "out_of_memory") {
		t.Errorf("a command after it: %v %v", answer, err)
	}
	if r := p.CLI("run", "--template", "tiny", "--memory", "128Mi", "--", "tail", "/dev/zero"); r.Code == 0 || !strings.Contains(r.Stderr, "out_of_memory") {
		t.Errorf("by the command line: %v", r)
	}
	if r := other.exec("true"); r.Code != 0 {
		t.Errorf("another sandbox: %+v", r)
	}
}
