package thread

import (
	"errors"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// no_new_privs is per thread and can be set without any right, so it shows which threads were used.
func TestChangedThreadIsNeverUsedAgain(t *testing.T) {
	if changed() {
		t.Fatal("no_new_privs is set already: the test shows nothing")
	}
	for range 20 {
		if err := Do(func() error {
			if unix.Gettid() == unix.Getpid() {
				t.Error("ran on the main thread")
			}
			return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		}); err != nil {
			t.Fatal(err)
		}
	}
	// Hold many threads at once, so that a changed one that went back to the pool has to turn up.
	var held, checked sync.WaitGroup
	release := make(chan struct{})
	for range 64 {
		held.Add(1)
		checked.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if changed() {
				t.Error("a goroutine runs on a changed thread")
			}
			held.Done()
			<-release
		})
	}
	held.Wait()
	close(release)
	checked.Wait()
}

func TestErrorComesBack(t *testing.T) {
	want := errors.New("from inside")
	if err := Do(func() error { return want }); err != want {
		t.Fatalf("got %v", err)
	}
}

func changed() bool {
	v, _, _ := unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0, 0)
	return v != 0
}
