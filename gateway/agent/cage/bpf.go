package cage

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The program is put together by hand. The assembler of go-seccomp-bpf (1.6.0) goes on with an argument in the
// register where the call's number belongs once a call's conditions have failed, and then compares that with the
// numbers that follow: socket(AF_NETLINK) was taken for ioctl, as both are 16.

// A want is a value that an argument must have.
type want struct {
	arg   int
	value uint64
}

// A rule lets one system call pass, or fail with an errno. Of several alternatives one must hold in full; when none
// does, or for a call without a rule, the process is killed.
type rule struct {
	nr           uint32
	alternatives []alternative
}

type alternative struct {
	wants []want
	errno unix.Errno // 0: allow
}

func (a alternative) verdict() uint32 {
	if a.errno != 0 {
		return unix.SECCOMP_RET_ERRNO | uint32(a.errno)
	}
	return unix.SECCOMP_RET_ALLOW
}

// Offsets in struct seccomp_data, little endian as all machines that we run on.
const (
	offsetNr, offsetArch = 0, 4
	offsetArgs           = 16
)

// assemble writes the rules as a straight line: each call's block returns or is jumped over as a whole, so the
// number is in the register at the head of each.
func assemble(arch uint32, x32 bool, rules []rule) ([]bpf.RawInstruction, error) {
	kill := bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS}
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: arch, SkipTrue: 1}, kill,
		bpf.LoadAbsolute{Off: offsetNr, Size: 4},
	}
	if x32 { // the same calls under other numbers
		p = append(p, bpf.JumpIf{Cond: bpf.JumpLessThan, Val: 0x40000000, SkipTrue: 1}, kill)
	}
	for _, r := range rules {
		var block []bpf.Instruction
		for _, a := range r.alternatives {
			// Each want is four instructions; the last of the alternative is followed by its verdict.
			for i, w := range a.wants {
				rest := 4 * (len(a.wants) - 1 - i)
				off := uint32(offsetArgs + 8*w.arg)
				block = append(block,
					bpf.LoadAbsolute{Off: off + 4, Size: 4},
					bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(w.value >> 32), SkipTrue: uint8(rest + 3)},
					bpf.LoadAbsolute{Off: off, Size: 4},
					bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(w.value), SkipTrue: uint8(rest + 1)})
			}
			block = append(block, bpf.RetConstant{Val: a.verdict()})
		}
		block = append(block, kill)
		if len(block) > 255 {
			return nil, fmt.Errorf("system call %d: %d instructions are too many for one jump", r.nr, len(block))
		}
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: r.nr, SkipTrue: uint8(len(block))})
		p = append(p, block...)
	}
	return bpf.Assemble(append(p, kill))
}

// load puts the program onto every thread of the process.
func load(program []bpf.RawInstruction) error {
	filter := make([]unix.SockFilter, len(program))
	for i, ins := range program {
		filter[i] = unix.SockFilter{Code: ins.Op, Jt: ins.Jt, Jf: ins.Jf, K: ins.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread() // no_new_privs is this thread's, and the filter takes it to the others
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	thread, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if e != 0 {
		return e
	}
	if thread != 0 {
		return fmt.Errorf("thread %d has a filter of its own", thread)
	}
	return nil
}
