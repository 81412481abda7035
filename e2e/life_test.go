package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/lab"
)

func TestStopLeavesNothing(t *testing.T) {
	l := lab.Start(t, lab.Options{})
	before, err := l.Look()
	if err != nil {
		t.Fatal(err)
	}
	p := l.StartProduct(t, lab.ProductOptions{Config: small})
	b := sandbox(t, p)
	b.exec("true")
	paused := sandbox(t, p)
	call(t, p, "POST", "/sandbox/"+paused.ID+"/pause", nil, 200, nil)
	// A create that the machine refuses: more memory than a cgroup can be told, or an image that isn't there.
	if answer, err := p.API("POST", "/sandbox/create", map[string]any{"template": "base"}); err != nil || answer.Status < 400 {
		t.Errorf("an image that is not built: %v %v", answer, err)
	}
	during, err := l.Look()
	if err != nil {
		t.Fatal(err)
	}
	if lab.Left(before, during) == nil {
		t.Error("the look sees nothing of a running product")
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	after, err := l.Look()
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Left(before, after); err != nil {
		t.Error(err)
	}
}

func TestInfoFileIsForItsOwnerOnly(t *testing.T) {
	_, p := shared(t)
	info, err := os.Stat(filepath.Join(filepath.Dir(p.LogFile), "info.json"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v", info.Mode())
	}
	if p.Info.APIKey == "" || !strings.HasSuffix(p.Info.APIURL, "/api/v1") || p.Info.State == "" || p.Info.Runsc == "" || p.Info.RunscRoot == "" || p.Info.EdgeNetns == "" {
		t.Errorf("it says %+v", p.Info)
	}
	for _, role := range []string{"supervisor", "node", "edge", "inward", "ingress", "control"} {
		if p.Info.PIDs[role] == 0 {
			t.Errorf("no number of %s", role)
		}
	}
}

func TestProcessesHaveOnlyTheirRights(t *testing.T) {
	_, p := shared(t)
	uids := map[string]string{}
	for _, role := range []string{"edge", "inward", "control", "ingress"} {
		pid, err := p.PID(role)
		if err != nil {
			t.Fatal(err)
		}
		status := procStatus(t, pid)
		for _, set := range []string{"CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if strings.Trim(status[set], "0") != "" {
				t.Errorf("%s has %s %s", role, set, status[set])
			}
		}
		if status["NoNewPrivs"] != "1" {
			t.Errorf("%s may gain rights", role)
		}
		if role == "edge" || role == "inward" {
			if status["Seccomp"] != "2" {
				t.Errorf("%s has no list of system calls", role)
			}
		}
		uid, _, _ := strings.Cut(status["Uid"], "\t")
		if uid == "0" || uids[uid] != "" {
			t.Errorf("%s has uid %s, %s", role, uid, uids[uid])
		}
		uids[uid] = role
		if status["Groups"] != "" {
			t.Errorf("%s has groups %s", role, status["Groups"])
		}
	}
	node, err := p.PID("node")
	if err != nil {
		t.Fatal(err)
	}
	if status := procStatus(t, node); strings.Trim(status["CapEff"], "0") == "" {
		t.Error("the node has no rights: this test looks at the wrong place")
	}
	inward, _ := p.PID("inward")
	edge, _ := p.PID("edge")
	if a, b := netnsOf(t, inward), netnsOf(t, edge); a == b {
		t.Error("inward lives where the uplink is")
	}
}

func procStatus(t *testing.T, pid int) map[string]string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for _, line := range strings.Split(string(data), "\n") {
		key, value, _ := strings.Cut(line, ":")
		fields[key] = strings.TrimSpace(value)
	}
	return fields
}

func netnsOf(t *testing.T, pid int) string {
	t.Helper()
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func TestPauseAndResume(t *testing.T) {
	_, p := shared(t)
	b := sandbox(t, p)
	b.exec("sh", "-c", "echo before >/workspace/file; while :; do date +%s >/tmp/clock; sleep 0.2; done >/dev/null 2>&1 &")
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
}

func TestLimitsHold(t *testing.T) {
	_, p := shared(t)
	b := sandbox(t, p, "memory", "128Mi")
	if r := b.exec("sh", "-c", "echo x >/etc/x"); r.Code == 0 {
		t.Errorf("the root can be written: %+v", r)
	}
	if r := b.exec("sh", "-c", "id -u; echo x >/workspace/x && echo x >/tmp/x && cat /workspace/x"); r.Stdout != "1001\nx\n" {
		t.Errorf("the workspace: %+v", r)
	}
	p.API("POST", "/sandbox/"+b.ID+"/execute", map[string]any{"command": []string{"sh", "-c", "tail /dev/zero"}, "timeout": 30_000})
	err := lab.Await(30*time.Second, "an end by memory", func() bool {
		v := b.view()
		return v.Status == "error" && v.Reason == "out_of_memory"
	})
	if err != nil {
		t.Errorf("%v: %+v", err, b.view())
	}
}

func TestSandboxEndsAtItsTimeout(t *testing.T) {
	_, p := shared(t)
	if answer, err := p.API("POST", "/sandbox/create", map[string]any{"template": "tiny", "timeout_seconds": 1}); err != nil || answer.Status != 422 && answer.Status != 400 {
		t.Errorf("a lifetime below the least: %v %v", answer, err)
	}
	b := sandbox(t, p, "timeout_seconds", 60)
	if err := lab.Await(90*time.Second, "end of the sandbox", func() bool {
		answer, err := p.API("GET", "/sandbox/"+b.ID, nil)
		var v view
		return err == nil && (answer.Status == 404 || answer.Into(&v) == nil && v.Status == "terminated" && v.Reason == "expired")
	}); err != nil {
		t.Error(err)
	}
}

func TestWrongConfigurationRefusesToStart(t *testing.T) {
	l := lab.Start(t, lab.Options{})
	for name, c := range map[string]struct{ config, want string }{
		"an unknown key":                   {"tunels: {}\n", "tunnels"},
		"an exemption from the hard floor": {"EXEMPT", "169.254"},
	} {
		options := lab.ProductOptions{Config: c.config, Ready: 30 * time.Second}
		if c.config == "EXEMPT" {
			options = lab.ProductOptions{NoExemption: true, Config: "  floor_exempt: [{cidr: 169.254.0.0/16, ports: [80]}]\n", Ready: 30 * time.Second}
		}
		p, err := l.NewProduct(options)
		if p != nil {
			defer p.Stop()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "ended") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestHostileInitEndsItsOwnSandboxOnly(t *testing.T) {
	_, p := shared(t)
	victim, other := sandbox(t, p), sandbox(t, p)
	if r := victim.exec("kill", "-9", "1"); r.Code == 0 {
		t.Errorf("a user process may kill process 1: %+v", r)
	}
	if r := victim.exec("true"); r.Code != 0 {
		t.Errorf("after the try: %+v", r)
	}
	// From outside: the sentry itself dies.
	if r := p.Runsc("kill", victim.view().RunscID, "KILL"); r.Code != 0 {
		t.Fatalf("killing the sandbox: %v", r)
	}
	if err := lab.Await(20*time.Second, "end of the killed sandbox", func() bool { return victim.view().Status != "running" }); err != nil {
		t.Error(err)
	}
	if r := other.exec("true"); r.Code != 0 {
		t.Errorf("another sandbox, after: %+v", r)
	}
	if _, err := p.Kill("inward", syscall.Signal(0)); err != nil {
		t.Error(err)
	}
}
