package clock

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how often it is looked whether the machine slept. Between two looks the time costs no system call; a line that is read
// in the moment after a sleep may lack it for so long.
const lookEvery = 100 * time.Millisecond

// A bootClock goes on while the machine sleeps, and nobody sets it. It is never ahead of what the kernel says, and never goes back.
type bootClock struct {
	ran    func() time.Duration // since any moment, without what the machine slept
	kernel func() time.Duration // since boot

	looked atomic.Int64 // by ran
	ahead  atomic.Int64 // how far kernel is ahead of ran; grows with each sleep
}

var born = time.Now()

var boot = bootClock{ran: func() time.Duration { return time.Since(born) }, kernel: sinceBoot}

// SinceBoot is how long ago the machine began, sleep included. Nobody sets it; leases go by it.
func SinceBoot() time.Duration { return boot.now() }

func (b *bootClock) now() time.Duration {
	ran := b.ran()
	if looked := b.looked.Load(); looked == 0 || ran-time.Duration(looked) >= lookEvery {
		at := b.kernel()
		ran = b.ran() // after it, so that waiting in between is taken for less and not for sleep
		for was := b.ahead.Load(); int64(at-ran) > was; was = b.ahead.Load() {
			if b.ahead.CompareAndSwap(was, int64(at-ran)) {
				break
			}
		}
		b.looked.Store(int64(max(ran, 1)))
	}
	return ran + time.Duration(b.ahead.Load())
}

func sinceBoot() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 1 << 62 // no clock: everything has ended, for a century and more
	}
	return time.Duration(ts.Nano())
}
