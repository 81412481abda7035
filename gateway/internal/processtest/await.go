package processtest

import (
	"testing"
	"time"
)

// Patience is how long anything may take on a busy machine.
const Patience = 15 * time.Second

// Await asks again and again, until f says yes.
func Await(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(Patience)
	for !f() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s did not come", what)
		}
	}
}
