package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// roles are the product's processes, with the words that their command lines begin with. The longer ones come first.
var roles = []struct {
	name string
	args []string
}{
	{"inward", []string{"portreeve-edge", "inward"}},
	{"edge", []string{"portreeve-edge"}},
	{"node", []string{"portreeve-node"}},
	{"control", []string{"portreeve", "control"}},
	{"ingress", []string{"portreeve", "ingress"}},
}

// A process is one line of ps.
type process struct {
	pid, parent int
	args        []string
}

// processes lists what runs on the machine.
func processes() []process {
	var all []process
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		stat, err := os.ReadFile(filepath.Join(dir, "stat"))
		if err != nil {
			continue // it has ended meanwhile
		}
		// The name in parentheses may hold anything, so what follows is counted from its end.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) < 2 || fields[0] == "Z" {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		all = append(all, process{pid, parent, strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")})
	}
	return all
}

func (p process) is(words []string) bool {
	if len(p.args) < len(words) || filepath.Base(p.args[0]) != words[0] {
		return false
	}
	for i, w := range words[1:] {
		if p.args[i+1] != w {
			return false
		}
	}
	return true
}

// PID returns the process that plays the role now: supervisor, node, edge, inward, control or ingress. It looks among
// the supervisor's children, as one that was restarted has another number than the info file says.
func (p *Product) PID(role string) (int, error) {
	supervisor := p.cmd.Process.Pid
	if role == "supervisor" {
		return supervisor, nil
	}
	for _, proc := range processes() {
		if proc.parent != supervisor {
			continue
		}
		for _, r := range roles {
			if proc.is(r.args) {
				if r.name == role {
					return proc.pid, nil
				}
				break
			}
		}
	}
	return 0, fmt.Errorf("no process plays the role %q", role)
}

// PIDs returns the number of the process that plays each role now; one that is not there is left out.
func (p *Product) PIDs() map[string]int {
	pids := map[string]int{"supervisor": p.cmd.Process.Pid}
	for _, r := range roles {
		if pid, err := p.PID(r.name); err == nil {
			pids[r.name] = pid
		}
	}
	return pids
}

// alive returns the product's processes that run now, the supervisor first.
func (p *Product) alive() []int {
	pids := []int{p.cmd.Process.Pid}
	for _, r := range roles {
		if pid, err := p.PID(r.name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Kill sends a signal to the process that plays the role, and returns its number.
func (p *Product) Kill(role string, sig syscall.Signal) (int, error) {
	pid, err := p.PID(role)
	if err != nil {
		return 0, err
	}
	return pid, syscall.Kill(pid, sig)
}

// AwaitRestart waits until another process than old plays the role.
func (p *Product) AwaitRestart(role string, old int, limit time.Duration) error {
	return Await(limit, fmt.Sprintf("a new %s", role), func() bool {
		pid, err := p.PID(role)
		return err == nil && pid != old
	})
}

// Await calls ok until it is true, and names what was waited for when the limit is over.
func Await(limit time.Duration, what string, ok func() bool) error {
	deadline := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			return fmt.Errorf("no %s within %v", strings.TrimPrefix(what, "a "), limit)
		case <-tick.C:
		}
	}
	return nil
}
