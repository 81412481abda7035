package decisions_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	seccomp "github.com/elastic/go-seccomp-bpf"
	"github.com/landlock-lsm/go-landlock/landlock"
	"golang.org/x/sys/unix"

	"portreeve.dev/egress/decisions"
)

const childEnv = "PORTREEVE_DECISIONS_CHILD" // "kill:DIR" or "cage:DIR"

func TestMain(m *testing.M) {
	if what, dir, ok := strings.Cut(os.Getenv(childEnv), ":"); ok {
		child(what, dir)
		return
	}
	os.Exit(m.Run())
}

func child(what, dir string) {
	if what == "cage" {
		cage(dir)
	}
	s, err := decisions.Open(dir, decisions.Config{Rate: 1e6, Burst: 1e6, OrgShare: 1})
	if err != nil {
		fmt.Println("open:", err)
		os.Exit(1)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := 0; what == "kill" || i < 200; i++ {
				d := decision("org_a", "sbx_a")
				if err := s.Record(context.Background(), d); err != nil {
					fmt.Println("record:", err)
					os.Exit(1)
				}
				mu.Lock()
				fmt.Println(d.ID)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	sent, err := s.Batch(10, true)
	if err == nil {
		err = s.Ack(sent.Spool, sent.Rows[0].Seq)
	}
	if err == nil {
		err = s.Close()
	}
	fmt.Println("end:", err)
}

func startChild(t *testing.T, what, dir string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what+":"+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func TestKilledProcessKeepsAcknowledged(t *testing.T) {
	dir := t.TempDir()
	acknowledged := make(map[string]bool)
	for round := range 4 {
		cmd, lines := startChild(t, "kill", dir)
		for n := 0; lines.Scan(); n++ {
			if !strings.HasPrefix(lines.Text(), "dec_") {
				t.Fatalf("child: %s", lines.Text())
			}
			acknowledged[lines.Text()] = true
			if n == 300+round*77 {
				cmd.Process.Kill()
			}
		}
		cmd.Wait()
		if shm, _ := filepath.Glob(filepath.Join(dir, "*-shm")); len(shm) > 0 {
			t.Errorf("shared memory files: %v", shm)
		}
	}
	s := open(t, dir, decisions.Config{OrgShare: 1})
	found := make(map[string]bool)
	var last uint64
	for _, r := range batch(t, s) {
		d, err := r.Decision()
		if err != nil || r.Seq <= last {
			t.Fatalf("row %d after %d: %v", r.Seq, last, err)
		}
		last = r.Seq
		found[d.ID] = true
	}
	for id := range acknowledged {
		if !found[id] {
			t.Errorf("%s was acknowledged before the kill and is gone", id)
		}
	}
	if len(acknowledged) < 1200 || len(found) > len(acknowledged)+4*8 {
		t.Errorf("%d acknowledged, %d found", len(acknowledged), len(found))
	}
}

func TestWorksInCage(t *testing.T) {
	cmd, lines := startChild(t, "cage", t.TempDir())
	n, end := 0, ""
	for ; lines.Scan(); n++ {
		end = lines.Text()
	}
	if err := cmd.Wait(); err != nil || end != "end: <nil>" || n != 8*200+1 {
		t.Errorf("caged child: %v, %d lines, last %q", err, n, end)
	}
}

// cage is the shape of edge's own: one writable directory, default action kill. The second line of calls is what SQLite adds.
func cage(dir string) {
	must := func(err error) {
		if err != nil {
			fmt.Println("cage:", err)
			os.Exit(1)
		}
	}
	must(landlock.V5.BestEffort().RestrictPaths(landlock.RWDirs(dir))) // what this kernel has of it
	cond := func(name string, arg uint32, op seccomp.Operation, v uint64) seccomp.NameWithConditions {
		return seccomp.NameWithConditions{Name: name, Conditions: seccomp.ArgumentConditions{{Argument: arg, Operation: op, Value: v}}}
	}
	const threads = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD
	must(seccomp.LoadFilter(seccomp.Filter{NoNewPrivs: true, Flag: seccomp.FilterFlagTSync, Policy: seccomp.Policy{
		DefaultAction: seccomp.ActionKillProcess,
		Syscalls: []seccomp.SyscallGroup{
			{Action: seccomp.ActionAllow, Names: []string{
				"mmap", "munmap", "mprotect", "madvise", "brk", "futex", "sched_yield", "sched_getaffinity", "getpid", "gettid", "tgkill",
				"rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall", "nanosleep", "clock_nanosleep", "clock_gettime", "gettimeofday",
				"exit", "exit_group", "getrandom", "timer_create", "timer_settime", "timer_delete", "setitimer",
				"read", "write", "readv", "writev", "pread64", "pwrite64", "close", "fcntl", "fstat", "newfstatat", "lseek", "openat", "getdents64", "pipe2", "dup3",
				"epoll_create1", "epoll_ctl", "epoll_pwait", "epoll_pwait2", "eventfd2", "uname", "getuid", "geteuid", "getgid", "getegid", "getppid",
			}},
			{Action: seccomp.ActionAllow, Names: sqliteCalls},
			{Action: seccomp.ActionAllow, NamesWithCondtions: []seccomp.NameWithConditions{
				cond("clone", 0, seccomp.BitsSet, threads), cond("prctl", 0, seccomp.Equal, unix.PR_SET_VMA)}},
		}}}))
}

var sqliteCalls = []string{"open", "stat", "lstat", "access", "unlink", "ftruncate", "fsync", "fdatasync", "fchown"}
