package thread

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// Do runs f on a locked thread, waits for it, and returns its error. The thread is never unlocked, so the runtime
// ends it. A goroutine that f starts runs elsewhere, outside of what f changed.
//
// The main thread cannot end: the runtime parks it, and everything under /proc/<pid> (status, ns/net) would go on
// telling what f did to it. So f never runs there: the main thread is held until f has found another one.
func Do(f func() error) error {
	done := make(chan error, 1)
	go run(f, done)
	return <-done
}

func run(f func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		done <- Do(f)
		runtime.UnlockOSThread()
		return
	}
	done <- f()
}
