package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A process is one that the bench started. Its children count with it.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
}

// start runs a program in a namespace and leaves it running.
func (w *world) start(name string, in *space, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(w.dir, name+".log")}
	out, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	full := in.command(args...)
	p.cmd = exec.Command(full[0], full[1:]...)
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = out, out, w.dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // as the product's own are
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	w.undo = append(w.undo, p.stop)
	return p, nil
}

// stop ends it and all of its group.
func (p *process) stop() {
	if p.cmd.ProcessState != nil {
		return
	}
	done := make(chan struct{})
	go func() { p.cmd.Wait(); close(done) }()
	syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
	select {
	case <-done:
	case <-time.After(15 * time.Second):
		syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
}

// said is the end of what it printed, for an error.
func (p *process) said() string {
	text, _ := os.ReadFile(p.log)
	return string(text[max(0, len(text)-2000):])
}

// family is the process and everything below it.
func family(root int) []int {
	all, grown := []int{root}, true
	parents := map[int]int{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if f := stat(pid); len(f) > 1 {
			parents[pid], _ = strconv.Atoi(f[1])
		}
	}
	in := map[int]bool{root: true}
	for grown {
		grown = false
		for pid, parent := range parents {
			if in[parent] && !in[pid] {
				in[pid], grown = true, true
				all = append(all, pid)
			}
		}
	}
	return all
}

// stat returns the fields of /proc/PID/stat from the state on.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
}

// ticks are hundredths of a second of processor time so far, of the processes with their ended children.
func ticks(pids []int) map[int]int64 {
	sums := map[int]int64{}
	for _, pid := range pids {
		if f := stat(pid); len(f) > 14 {
			for _, i := range []int{11, 12} {
				n, _ := strconv.ParseInt(f[i], 10, 64)
				sums[pid] += n
			}
		}
	}
	return sums
}

// program is what a process runs, with its role.
func program(pid int) string {
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(string(line), "\x00")
	name := filepath.Base(args[0])
	if len(args) > 1 && args[1] != "" && !strings.HasPrefix(args[1], "-") {
		name += " " + args[1]
	}
	return name
}

// resident is the memory of the processes that is theirs alone, in bytes.
func resident(pids []int) (sum int64) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 1 && (f[0] == "Private_Dirty:" || f[0] == "Private_Clean:") {
				kib, _ := strconv.ParseInt(f[1], 10, 64)
				sum += kib << 10
			}
		}
	}
	return sum
}

// result is what the load generator prints.
type result struct {
	Done, Failed int
	Error        string
	Seconds      float64
	P50, P99     float64
	Bytes        int64
}

// load runs the load generator; warm is called when it says that its connections stand.
func (w *world) load(ctx context.Context, in *space, warm func(), args ...string) (r result, err error) {
	return w.loadBy(ctx, in, warm, append([]string{w.tool("load")}, args...)...)
}

// loadBy is load by another command line.
func (w *world) loadBy(ctx context.Context, in *space, warm func(), args ...string) (r result, err error) {
	full := in.command(args...)
	cmd := exec.CommandContext(ctx, full[0], full[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	var out bytes.Buffer
	cmd.Stdout = &out
	said, err := cmd.StderrPipe()
	if err != nil {
		return r, err
	}
	if err := cmd.Start(); err != nil {
		return r, err
	}
	words := ""
	for lines := bufio.NewScanner(said); lines.Scan(); {
		if lines.Text() == "ready" && warm != nil {
			warm()
			continue
		}
		words += lines.Text() + "\n"
	}
	if err := cmd.Wait(); err != nil {
		return r, fmt.Errorf("load %v: %w: %s", args, err, words)
	}
	return r, json.Unmarshal(out.Bytes(), &r)
}

// lowly has a command run when no other wants the processor: what it stands for is elsewhere, or held by the limits of a sandbox. Where the
// kernel weighs sessions and not processes, its session is what counts.
func lowly(args ...string) []string {
	return append([]string{"chrt", "--idle", "0", "sh", "-c", `[ ! -w /proc/self/autogroup ] || echo 19 > /proc/self/autogroup; exec "$@"`, "sh"}, args...)
}

// awaitPort returns once something listens.
func (s *space) awaitPort(network, addr string, p *process) error {
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		full := s.command("ss", "-Hlntu", "src", addr)
		out, err := exec.Command(full[0], full[1:]...).Output()
		if err == nil && strings.Contains(string(out), network) {
			return nil
		}
	}
	return fmt.Errorf("%s does not listen on %s: %s", p.name, addr, p.said())
}

func output(args ...string) (string, error) { return outputOf("", args...) }

// outputOf runs a command with something on its standard input.
func outputOf(input string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
