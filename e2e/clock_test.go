package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// TestWhatEndedStaysEndedOverARestart: a run came two days further than the machine's clock says now, and stopped. In the next one what
// ended on the first of these days is over, whichever process is started again; the twin that ends later lives. No clock is set for
// that: the machine's is everybody's.
func TestWhatEndedStaysEndedOverARestart(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	day := func(n int) string { return time.Now().AddDate(0, 0, n).UTC().Format(time.RFC3339) }
	ceiling(t, p, allow("ends", "good.test", "expires_at", day(1)), allow("stays", "api.test", "expires_at", day(7)))
	keys := map[string]int{}
	for days, later := range map[int]int{1: 401, 7: 200} {
		var made struct{ Key string }
		call(t, p, "POST", "/api-keys", map[string]any{"name": "ci", "scopes": []string{"read"}, "expires_in_days": days}, 201, &made)
		keys[made.Key] = later
	}
	reaches := func(when string, p *lab.Product, ended bool) {
		t.Helper()
		b := armed(t, p)
		for host, want := range map[string]bool{"good.test": !ended, "api.test": true} {
			if open, said := b.hostile("tls", host+":443", host, host, "/"); open != want {
				t.Errorf("%s: %s is reached: %v, want %v: %s", when, host, open, want, said)
			}
		}
		for key, later := range keys {
			if !ended {
				later = 200
			}
			if answer, err := p.Call(key, "GET", "/policies", nil); err != nil || answer.Status != later {
				t.Errorf("%s: with a key: %v %v, want %d", when, answer, err, later)
			}
		}
	}
	reaches("before", p, false)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(p.State, "clock")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text))); err != nil || time.Since(left).Abs() > time.Minute {
		t.Errorf("a run that stopped now leaves %q, %v", text, err)
	}
	if err := os.WriteFile(file, []byte(day(2)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	behind := l.StartProduct(t, lab.ProductOptions{Config: small, State: p.State})
	reaches("two days on", behind, true)
	for _, role := range []string{"edge", "control"} {
		old, err := behind.Kill(role, syscall.SIGKILL)
		if err != nil {
			t.Fatal(err)
		}
		if err := behind.AwaitRestart(role, old, 15*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	reaches("after edge and control were started again", behind, true)
	if !strings.Contains(behind.Log(200), "the machine's clock is behind") {
		t.Error("nobody is told that the machine's clock is behind")
	}
}
