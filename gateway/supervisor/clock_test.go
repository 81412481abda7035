package supervisor

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/internal/clock"
)

func TestRunGoesOnFromTheLast(t *testing.T) {
	for name, tt := range map[string]struct {
		left  string // in the file; empty: there is none
		least time.Duration
		err   string
	}{
		"the first run":                  {"", 0, ""},
		"as it was":                      {time.Now().Add(-time.Hour).Format(time.RFC3339Nano), 0, ""},
		"the clock was set back by more": {time.Now().Add(48 * time.Hour).Format(time.RFC3339Nano), 47 * time.Hour, ""},
		"a file that says nothing":       {"\n", 0, "then remove the file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if tt.left != "" {
				if err := os.WriteFile(filepath.Join(dir, clockFile), []byte(tt.left+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			before := time.Now()
			c, err := openClock(dir, slog.New(slog.DiscardHandler))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("%v, %v", c, err)
				}
				return
			}
			if err != nil || c.Now().Before(before.Add(tt.least)) || c.Now().After(before.Add(tt.least+2*time.Hour)) {
				t.Errorf("it says %v at %v, %v", c.Now(), before, err)
			}
			// What this run leaves, the next one takes.
			s := &Supervisor{config: Config{StateDir: dir}, clock: c}
			if err := s.writeClock(); err != nil {
				t.Fatal(err)
			}
			next, err := openClock(dir, slog.New(slog.DiscardHandler))
			if err != nil || next.Now().Before(c.At) {
				t.Errorf("the next run begins at %v, and this one began at %v; %v", next.At, c.At, err)
			}
		})
	}
}

func TestProcessesHaveOneClock(t *testing.T) {
	t.Parallel()
	s := &Supervisor{config: Config{StateDir: t.TempDir(), HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Settings: settings(t)}, clock: clock.New(time.Now().Add(time.Hour))}
	for _, p := range s.processes() {
		if p.job.name == Inward { // nothing ends by time there
			continue
		}
		for _, restart := range []bool{false, true} {
			config, files, err := p.job.prepare(restart)
			if err != nil {
				t.Fatalf("%s: %v", p.job.name, err)
			}
			closeAll(files)
			data, err := json.Marshal(config)
			if err != nil {
				t.Fatal(err)
			}
			var told struct{ Clock clock.Clock }
			if err := json.Unmarshal(data, &told); err != nil || told.Clock != s.clock {
				t.Errorf("%s, started again %v, is told %+v, want %+v; %v", p.job.name, restart, told.Clock, s.clock, err)
			}
		}
	}
}
