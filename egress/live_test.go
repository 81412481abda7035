package egress

import (
	"testing"
	"time"
)

// TestIdleGoesByNoSetClock: Idle measures from epoch, and a time without its monotonic reading is measured by the machine's clock.
func TestIdleGoesByNoSetClock(t *testing.T) {
	t.Parallel()
	if epoch == epoch.Round(0) {
		t.Fatalf("idleness begins at %v, which a step of the machine's clock moves", epoch)
	}
	var l Live
	l.Moved()
	if idle := l.Idle(); idle < 0 || idle > time.Minute {
		t.Errorf("idle for %v as soon as a byte moved", idle)
	}
}
