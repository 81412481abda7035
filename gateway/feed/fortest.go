package feed

import "time"

// SetClockForTest puts another clock in place of the machine's, for tests of the processes that hold a feed. Call it before use.
func (h *Holder) SetClockForTest(sinceBoot func() time.Duration) { h.clock = sinceBoot }
