package main

import (
	"fmt"
	"runtime"
	"syscall"
)

// asUser runs f on a thread of its own with effective uid and gid 1001 and without effective capabilities, then throws the thread away.
//
// Rights belong to threads, in Linux and in gVisor; raw system calls change this one only. Real and saved uid stay 0,
// so that no user process may signal or trace the thread. f must not start goroutines: they would run with init's rights.
func asUser(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if err := becomeUser(); err != nil {
			done <- err
			return
		}
		defer func() {
			if r := recover(); r != nil {
				done <- fmt.Errorf("panic: %v", r)
			}
		}()
		done <- f()
	}()
	return <-done
}

func becomeUser() error {
	const keep = ^uintptr(0)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, keep, userID, keep); errno != 0 {
		return fmt.Errorf("taking the user's gid: %w", errno)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, keep, userID, keep); errno != 0 {
		return fmt.Errorf("taking the user's uid: %w", errno)
	}
	if uid, _, _ := syscall.RawSyscall(syscall.SYS_GETEUID, 0, 0, 0); uid != userID {
		return fmt.Errorf("the thread still has uid %d", uid)
	}
	return nil
}
