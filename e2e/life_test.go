package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// TestStopLeavesNothing stops a product that is in the middle of everything: a command that runs, a flow that is open, a paused
// sandbox, failed creates behind it.
func TestStopLeavesNothing(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, lab.Options{})
	before := look(t, l)
	p := l.StartProduct(t, lab.ProductOptions{Config: small})
	ceiling(t, p, allow("echo", "tcp.test", "ports", []int{7}, "protocols", []string{"tcp"}))
	b := armed(t, p)
	b.background("/workspace/hostile hold tcp.test:7")
	running := b.start("sleep", "100")
	paused := sandbox(t, p)
	call(t, p, "POST", "/sandbox/"+paused.ID+"/pause", nil, 200, nil)
	if answer, err := p.API("POST", "/sandbox/create", map[string]any{"template": "base"}); err != nil || answer.Status < 400 {
		t.Errorf("an image that is not built: %v %v", answer, err)
	}
	if err := lab.Await(10*time.Second, "open flow", func() bool { return l.TCP.Connections() == 1 }); err != nil {
		t.Error(err)
	}
	if lab.Left(before, look(t, l)) == nil {
		t.Error("the look sees nothing of a running product")
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if r := <-running; r.Code == 0 {
		t.Errorf("the command that ran: %+v", r)
	}
	if err := lab.Left(before, look(t, l)); err != nil {
		t.Error(err)
	}
}

func look(t *testing.T, l *lab.Lab) lab.World {
	t.Helper()
	w, err := l.Look()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestFailedCreateLeavesNothing: of a sandbox that could not be made nothing is left on the machine, however far it got.
func TestFailedCreateLeavesNothing(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	before := look(t, l)
	for _, c := range []struct {
		name string
		body map[string]any
	}{
		{"an image that is not built", map[string]any{"template": "base"}},
		{"too little memory to start in", map[string]any{"template": "tiny", "memory": "16Mi"}},
	} {
		answer, err := p.API("POST", "/sandbox/create", c.body)
		if err != nil || answer.Status < 400 {
			t.Errorf("%s: %v %v", c.name, answer, err)
		}
		if err := lab.Await(10*time.Second, "tidy machine", func() bool { return lab.Left(before, look(t, l)) == nil }); err != nil {
			t.Errorf("%s: %v", c.name, lab.Left(before, look(t, l)))
		}
	}
	// The node dies in the middle, at another place each time. Either the sandbox is there and whole, or nothing of it is.
	for round := range 6 {
		made := make(chan lab.Answer, 1)
		go func() {
			answer, err := p.API("POST", "/sandbox/create", map[string]any{"template": "tiny", "memory": "128Mi"})
			if err != nil {
				answer.Body = []byte(err.Error())
			}
			made <- answer
		}()
		// How far it gets is told by what is on the machine: that many things of its making.
		lab.Await(5*time.Second, "sandbox that is being made", func() bool { return len(look(t, l)) > len(before)+round/2 || len(made) > 0 })
		old, err := p.Kill("node", syscall.SIGKILL)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.AwaitRestart("node", old, 15*time.Second); err != nil {
			t.Fatal(err)
		}
		answer := <-made
		var v view
		if answer.Status == 201 && answer.Into(&v) == nil {
			b := &box{t, p, v.ID}
			b.works("although the node died", "true")
			call(t, p, "DELETE", "/sandbox/"+v.ID, nil, 200, nil)
		}
		before := retold(before, p)
		if err := lab.Await(20*time.Second, "tidy machine", func() bool { return lab.Left(before, retold(look(t, l), p)) == nil }); err != nil {
			t.Errorf("round %d, which answered %v: %v", round, answer, lab.Left(before, retold(look(t, l), p)))
		}
	}
}

// retold leaves out the numbers of the node's processes, which it changed by dying.
func retold(w lab.World, p *lab.Product) (same lab.World) {
	for _, line := range w {
		if strings.HasPrefix(line, "process ") && strings.Contains(line, "portreeve-node") {
			line = "process portreeve-node"
		}
		same = append(same, line)
	}
	return same
}

func TestPauseAndResume(t *testing.T) {
	_, p := shared(t)
	b := sandbox(t, p)
	b.background("echo before >/workspace/file; while :; do date +%s%N >/tmp/clock; sleep 0.1; done")
	b.works("once the clock runs", "ls", "/tmp/clock")
	first := b.view()
	if r := p.CLI("sandbox", "pause", b.ID); r.Code != 0 {
		t.Fatal(r)
	}
	if v := b.view(); v.Status != "paused" {
		t.Errorf("its status is %s", v.Status)
	}
	if answer, err := p.API("POST", "/sandbox/"+b.ID+"/execute", map[string]any{"command": []string{"true"}}); err != nil || answer.Status != 409 {
		t.Errorf("a command in a paused sandbox: %v %v", answer, err)
	}
	if r := p.CLI("sandbox", "resume", b.ID); r.Code != 0 {
		t.Fatal(r)
	}
	again := b.view()
	if again.Status != "running" || again.Incarnation != first.Incarnation || again.Generation <= first.Generation || again.Addr != first.Addr {
		t.Errorf("before %+v, after %+v", first, again)
	}
	if r := b.exec("cat", "/workspace/file"); r.Stdout != "before\n" {
		t.Errorf("its file: %+v", r)
	}
	clock := b.exec("cat", "/tmp/clock").Stdout
	if err := lab.Await(5*time.Second, "clock that goes on", func() bool { return b.exec("cat", "/tmp/clock").Stdout != clock }); err != nil {
		t.Error(err)
	}
}

func TestLimitsHold(t *testing.T) {
	_, p := shared(t)
	b := sandbox(t, p, "workspace", map[string]any{"size": "16Mi"})
	if r := b.exec("sh", "-c", "echo x >/etc/x"); r.Code == 0 {
		t.Errorf("the root can be written: %+v", r)
	}
	if r := b.exec("sh", "-c", "id -u; echo x >/workspace/x && echo x >/tmp/x && cat /workspace/x"); r.Stdout != "1001\nx\n" {
		t.Errorf("the workspace: %+v", r)
	}
	if r := b.exec("sh", "-c", "head -c 8000000 /dev/zero >/workspace/fits"); r.Code != 0 {
		t.Errorf("8 MB in a workspace of 16 MiB: %+v", r)
	}
	if r := b.exec("sh", "-c", "head -c 80000000 /dev/zero >/workspace/big"); r.Code == 0 {
		t.Errorf("80 MB in a workspace of 16 MiB: %+v", r)
	}
	if r := b.exec("sh", "-c", "rm -f /workspace/big /workspace/fits; head -c 8000000 /dev/zero >/workspace/fits"); r.Code != 0 {
		t.Errorf("the room is not given back: %+v", r)
	}
}

func TestSandboxEndsAtItsTimeout(t *testing.T) {
	t.Parallel()
	_, p := own(t)
	for _, seconds := range []int{0, 1, 59} {
		if answer, err := p.API("POST", "/sandbox/create", map[string]any{"template": "tiny", "timeout_seconds": seconds}); err != nil || answer.Status != 422 && answer.Status != 400 {
			t.Errorf("a lifetime of %d s: %v %v", seconds, answer, err)
		}
	}
	b, longer := sandbox(t, p, "timeout_seconds", 60), sandbox(t, p, "timeout_seconds", 60)
	call(t, p, "POST", "/sandbox/"+longer.ID+"/extend", map[string]any{"additional_seconds": 600}, 200, nil)
	start := time.Now()
	if err := lab.Await(90*time.Second, "end of the sandbox", func() bool {
		answer, err := p.API("GET", "/sandbox/"+b.ID, nil)
		var v view
		return err == nil && answer.Into(&v) == nil && v.Status == "terminated" && v.Reason == "expired"
	}); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took < 50*time.Second {
		t.Errorf("it ended after %v", took)
	}
	if r := longer.exec("true"); r.Code != 0 {
		t.Errorf("one that was given more time: %+v", r)
	}
}
