package cage

import (
	"errors"
	"fmt"
	"slices"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// What a Go process that serves and dials needs once it runs. Start-up is over by then.
var common = []string{
	// memory, threads, signals, time
	"mmap", "munmap", "mremap", "mprotect", "madvise", "brk", "futex", "sched_yield", "sched_getaffinity",
	"getpid", "gettid", "getppid", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall",
	"nanosleep", "clock_nanosleep", "clock_gettime", "clock_getres", "gettimeofday", "time", "exit", "exit_group", "getrandom",
	"timer_create", "timer_settime", "timer_delete", "setitimer", "getrusage",
	// descriptors; pread64 rereads the CPU limit from files that were open before
	"read", "write", "readv", "writev", "pread64", "pwrite64", "close", "fcntl", "fstat", "lseek", "pipe2", "dup3",
	"epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "epoll_pwait2", "eventfd2", "splice", "sendfile",
	// sockets: "listen" is not among them
	"connect", "accept4", "bind", "getsockname", "getpeername", "setsockopt", "getsockopt", "shutdown",
	"sendto", "recvfrom", "sendmsg", "recvmsg", "sendmmsg", "recvmmsg",
	// who we are
	"uname", "getuid", "geteuid", "getgid", "getegid", "capget",
}

// Calls on files: the edge's database and what Go's os package does. Landlock says which files.
var files = []string{
	"open", "openat", "openat2", "stat", "lstat", "newfstatat", "statx", "access", "faccessat", "faccessat2", "readlink", "readlinkat", "getcwd",
	"getdents64", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir", "rename", "renameat", "renameat2",
	"ftruncate", "fallocate", "fsync", "fdatasync", "fadvise64", "flock", "fchmod", "fchmodat", "umask", "utimensat", "copy_file_range",
}

// Calls that a library may try and can do without: refused, not deadly.
var refused = []string{"ioctl"}

// threadFlags are exactly those with which the Go runtime starts a thread: some machines set the thread pointer by
// the call. Anything less exact would let fork and vfork through.
const threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD

// prctlOptions: the runtime names its mappings; the others only read.
var prctlOptions = []uint64{unix.PR_SET_VMA, unix.PR_GET_SECCOMP, unix.PR_GET_NO_NEW_PRIVS, unix.PR_GET_DUMPABLE, unix.PR_CAPBSET_READ}

// A list collects rules by the calls' names.
type list struct {
	numbers map[string]int
	rules   []rule
	err     error
}

func (l *list) add(name string, a ...alternative) {
	nr, ok := l.numbers[name]
	if !ok {
		l.err = errors.Join(l.err, fmt.Errorf("system call %q has no number", name))
		return
	}
	i := slices.IndexFunc(l.rules, func(r rule) bool { return r.nr == uint32(nr) })
	if i < 0 {
		l.rules = append(l.rules, rule{nr: uint32(nr)})
		i = len(l.rules) - 1
	}
	l.rules[i].alternatives = append(l.rules[i].alternatives, a...)
}

// addAll adds calls with one verdict. Not every machine has the old ones.
func (l *list) addAll(names []string, errno unix.Errno) {
	for _, n := range names {
		if _, ok := l.numbers[n]; ok {
			l.add(n, alternative{errno: errno})
		}
	}
}

// filter builds the role's program.
func (r Role) filter() ([]bpf.RawInstruction, error) {
	machine, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	l := &list{numbers: machine.SyscallNames}
	l.addAll(common, 0)
	l.addAll(refused, unix.EACCES)
	l.add("clone", onlyIf(want{0, threadFlags}), onlyIf(want{0, threadFlags | unix.CLONE_SETTLS}))
	l.add("tgkill", onlyIf(want{0, uint64(unix.Getpid())})) // Go preempts its own threads, and nobody else's
	l.add("socketpair", onlyIf(want{0, unix.AF_UNIX}))
	for _, o := range prctlOptions {
		l.add("prctl", onlyIf(want{0, o}))
	}
	l.add("socket", socket(unix.AF_UNIX, unix.SOCK_STREAM, 0), socket(unix.AF_UNIX, unix.SOCK_DGRAM, 0))
	switch r {
	case Edge:
		l.addAll(files, 0)
		for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
			l.add("socket", socket(f, unix.SOCK_STREAM, 0), socket(f, unix.SOCK_STREAM, unix.IPPROTO_TCP),
				socket(f, unix.SOCK_DGRAM, 0), socket(f, unix.SOCK_DGRAM, unix.IPPROTO_UDP))
		}
	case Inward:
		l.addAll(files, unix.EACCES)
		l.add("socket", socket(unix.AF_INET, unix.SOCK_STREAM, 0), socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP))
		// A name lookup or IPv6 is a mistake here, but not worth every stream of the node.
		for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
			l.add("socket", refuse(socket(f, unix.SOCK_DGRAM, 0)), refuse(socket(f, unix.SOCK_STREAM, 0)), refuse(socket(f, unix.SOCK_STREAM, unix.IPPROTO_TCP)))
		}
	default:
		return nil, fmt.Errorf("role %d has no filter", r)
	}
	// Package net tries MPTCP first when it listens, and falls back.
	for _, f := range []int{unix.AF_INET, unix.AF_INET6} {
		l.add("socket", refuse(socket(f, unix.SOCK_STREAM, unix.IPPROTO_MPTCP)))
	}
	if l.err != nil {
		return nil, l.err
	}
	return assemble(uint32(machine.ID), machine.ID == arch.X86_64.ID, l.rules)
}

func onlyIf(w ...want) alternative { return alternative{wants: w} }

func refuse(a alternative) alternative {
	a.errno = unix.EACCES
	return a
}

// socket allows exactly the way in which package net makes one: close-on-exec and non-blocking.
func socket(family, kind, protocol int) alternative {
	return onlyIf(want{0, uint64(family)}, want{1, uint64(kind | unix.SOCK_CLOEXEC | unix.SOCK_NONBLOCK)}, want{2, uint64(protocol)})
}
