package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"portreeve.dev/lab"
)

func TestMakeHelp(t *testing.T) {
	root, err := lab.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("make", "-C", root, "help").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, target := range []string{"setup", "build", "run", "test", "race", "fuzz", "bench", "prove", "lint", "vuln", "e2e", "demo", "dist", "vm", "docs", "generate", "check", "clean"} {
		if !regexp.MustCompile(`(?m)^` + target + ` +\S`).Match(out) {
			t.Errorf("no help for %s:\n%s", target, out)
		}
	}
}

func TestMakeRunReachesItsScreen(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, lab.Options{})
	root, err := lab.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(l.Dir, "config.yaml")
	if err := os.WriteFile(config, []byte(small), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", l.Gateway.Name, "make", "-C", root, "run",
		"ARGS=--state "+filepath.Join(l.Dir, "state")+" --config "+config)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said, reached := "", false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said += lines.Text() + "\n"
		if strings.Contains(lines.Text(), "Ctrl-C stops everything") {
			reached = true
			syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		}
	}
	cmd.Wait()
	if !reached || !strings.Contains(said, "/api/v1") || !strings.Contains(said, "portreeve has stopped") {
		t.Errorf("make run printed:\n%s", said)
	}
}

func TestShellIsATerminal(t *testing.T) {
	_, p := shared(t)
	ctx, cancel := context.WithTimeout(context.Background(), lab.CommandLimit)
	defer cancel()
	cmd := p.Command(ctx, "shell", "--template", "tiny")
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 40, Cols: 100})
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	terminal.SetDeadline(time.Now().Add(time.Minute))
	out := ""
	until := func(want string) {
		t.Helper()
		buf := make([]byte, 4096)
		for !strings.Contains(out, want) {
			n, err := terminal.Read(buf)
			out += string(buf[:n])
			if err != nil {
				t.Fatalf("the terminal did not say %q (%v): %q", want, err, out)
			}
		}
	}
	until("$ ")
	io.WriteString(terminal, "echo it is $((2+3)); cat\n")
	until("it is 5")
	// Ctrl-C is for cat alone; the shell goes on. What cat says back tells that it runs: before, the shell's own child
	// has the signal's handler of a shell and Ctrl-C is lost, as on any Unix.
	io.WriteString(terminal, "say it back\n")
	until("say it back\r\nsay it back\r\n")
	io.WriteString(terminal, "\x03")
	io.WriteString(terminal, "tty; id -u; stty size; exit 3\n")
	for _, want := range []string{"/dev/pts/", "1001", "40 100"} {
		until(want)
	}
	cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("it ended with %d, want the shell's own 3", code)
	}
}

// TestOutputForScripts: the fields that scripts rely on, and nothing else on standard output.
func TestOutputForScripts(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p, allow("good", "good.test"))
	created := p.CLI("sandbox", "create", "--template", "tiny", "--output", "json")
	var made struct {
		ID string `json:"sandbox_id"`
	}
	if err := json.Unmarshal([]byte(created.Stdout), &made); err != nil || created.Code != 0 || !strings.HasPrefix(made.ID, "sbx_") {
		t.Fatalf("create: %v: %v", err, created)
	}
	b := &box{t, p, made.ID}
	t.Cleanup(func() { p.API("DELETE", "/sandbox/"+made.ID, nil) })
	var fields map[string]any
	inspected := p.CLI("sandbox", "inspect", made.ID, "--output", "json")
	if err := json.Unmarshal([]byte(inspected.Stdout), &fields); err != nil || inspected.Code != 0 {
		t.Fatalf("inspect: %v: %v", err, inspected)
	}
	for _, field := range []string{"addr", "runsc_id", "incarnation", "generation", "policy", "policy_version", "status"} {
		if _, ok := fields[field]; !ok {
			t.Errorf("inspect has no %s: %s", field, inspected.Stdout)
		}
	}
	if r := p.Runsc("state", b.view().RunscID); r.Code != 0 || !strings.Contains(r.Stdout, "running") {
		t.Errorf("runsc does not know it by that id: %v", r)
	}
	if r := p.CLI("sandbox", "exec", made.ID, "--", "sh", "-c", "echo out; echo err >&2; exit 7"); r.Code != 7 || r.Stdout != "out\n" || !strings.Contains(r.Stderr, "err\n") {
		t.Errorf("exec: %v", r)
	}
	if r := p.CLIWith("from here", "sandbox", "list", "--output", "json"); r.Code != 0 || !json.Valid([]byte(r.Stdout)) || !strings.Contains(r.Stdout, made.ID) {
		t.Errorf("list: %v", r)
	}

	// What is decided while one looks appears, one JSON object a line.
	ctx, cancel := context.WithTimeout(context.Background(), lab.CommandLimit)
	defer cancel()
	follow := p.Command(ctx, "decisions", "-f", "--output", "json", "--sandbox", made.ID)
	out, err := follow.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := follow.Start(); err != nil {
		t.Fatal(err)
	}
	defer follow.Wait()
	defer cancel()
	seen := make(chan decision, 100)
	go func() {
		defer close(seen)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var d decision
			if json.Unmarshal(lines.Bytes(), &d) == nil {
				seen <- d
			}
		}
	}()
	b.background("while :; do nslookup fresh-$(date +%s).test; sleep 0.2; done")
	select {
	case d, ok := <-seen:
		if !ok || d.Sandbox != made.ID || d.Verdict != "deny" || !strings.HasPrefix(d.Host, "fresh-") {
			t.Errorf("the first that was followed: %+v", d)
		}
	case <-time.After(20 * time.Second):
		t.Error("nothing was followed")
	}
	if r := p.CLI("sandbox", "delete", made.ID); r.Code != 0 {
		t.Errorf("delete: %v", r)
	}
	if v := b.view(); v.Status != "terminated" || v.Reason != "deleted" {
		t.Errorf("after it: %+v", v)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	_, p := shared(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"frobnicate"}, 2, "unknown command"},
		{[]string{"sandbox", "inspect", "sbx_01890000-0000-7000-8000-000000000000"}, 1, "no such sandbox"},
		{[]string{"run"}, 2, "run -- CMD"},
		{[]string{"run", "--template", "tiny", "--", "no-such-program"}, 127, "no-such-program"},
		{[]string{"policy", "check", "https://evil.test/"}, 3, ""},
	} {
		r := p.CLI(c.args...)
		if r.Code != c.code || !strings.Contains(strings.ToLower(r.Stdout+r.Stderr), strings.ToLower(c.want)) {
			t.Errorf("portreeve %s: %v, want code %d and %q", strings.Join(c.args, " "), r, c.code, c.want)
		}
	}
}

// TestDemo runs the tour whole, and with one thing done wrong on purpose: it must notice at the right step.
func TestDemo(t *testing.T) {
	root, err := lab.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	t.Parallel()
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 0, "Every step did what it says"},
		{[]string{"-break", "allow"}, 1, `step 6, "the same call arrives"`},
		{[]string{"-break", "kill"}, 1, `step 7, "the proxy is killed`},
		{[]string{"-break", "grant"}, 1, `step 9, "a sandbox calls https://api.test/`},
		{[]string{"-break", "wake"}, 1, `step 12, "the sandbox is paused`},
		{[]string{"-break", "method"}, 1, `step 13, "a POST to https://api.test/`},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "go", append([]string{"run", "./.build/demo"}, c.args...)...)
			cmd.Dir = root
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(string(out), c.want) {
				t.Errorf("demo %v: exit %d, want %d and %q\n%s", c.args, code, c.code, c.want, out)
			}
		})
	}
}
