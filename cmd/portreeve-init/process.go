package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// process is one that init started itself.
type process struct {
	pid    int
	done   chan struct{}      // closed after status is set
	status syscall.WaitStatus // valid after done
}

// table knows the living processes that init started. Whoever else becomes a child of process 1 is only reaped.
type table struct {
	mu   sync.Mutex // also held over fork and wait, so that a pid in live can't be anybody else's
	live map[int]*process
}

// start runs path as the user in a new session.
func (t *table) start(path string, argv, env []string, dir string, files []uintptr, tty bool) (*process, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: dir, Env: env, Files: files,
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: tty, Credential: &syscall.Credential{Uid: userID, Gid: userID}},
	})
	if err != nil {
		return nil, err
	}
	p := &process{pid: pid, done: make(chan struct{})}
	t.live[pid] = p
	return p, nil
}

// reap collects every child that has ended.
func (t *table) reap() {
	for {
		t.mu.Lock()
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if p := t.live[pid]; err == nil && p != nil {
			delete(t.live, pid)
			p.status = status
			close(p.done)
		}
		t.mu.Unlock()
		if err != syscall.EINTR && pid <= 0 {
			return
		}
	}
}

// signal sends sig to p's process group.
func (t *table) signal(p *process, sig syscall.Signal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live[p.pid] == p {
		syscall.Kill(-p.pid, sig)
	}
}

// killSession ends p and all in its session, also jobs that a shell put into groups of their own.
// While p isn't reaped, nobody else can get its number. Several rounds, because the killed may be forking.
func (t *table) killSession(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live[p.pid] != p {
		return
	}
	for range 20 {
		alive := false
		for _, pid := range pids() {
			if pid != 1 && sessionOf(pid) == p.pid {
				syscall.Kill(pid, syscall.SIGKILL)
				alive = true
			}
		}
		if !alive {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// pids lists the processes of the sandbox.
func pids() []int {
	var all []int
	folders, _ := filepath.Glob("/proc/[1-9]*")
	for _, folder := range folders {
		if pid, err := strconv.Atoi(filepath.Base(folder)); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// sessionOf returns the session of a living process, 0 for one that is gone or a zombie.
func sessionOf(pid int) int {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	// pid (name) state parent group session ...; the name may hold anything, also parentheses.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 4 || fields[0][0] == 'Z' || fields[0][0] == 'X' {
		return 0
	}
	session, _ := strconv.Atoi(string(fields[3]))
	return session
}

// shutdown ends all processes and then init, which ends the sandbox.
func shutdown() {
	syscall.Kill(-1, syscall.SIGTERM)
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end) && len(pids()) > 1; {
		time.Sleep(20 * time.Millisecond)
	}
	os.Exit(0)
}
