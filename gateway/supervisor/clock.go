package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"portreeve.dev/gateway/internal/clock"
)

// clockFile holds what the line of the last run had come to, so that a start under a clock that was set back brings nothing alive again.
const clockFile = "clock"

// clockEvery is how often it is written: so much of the time may be lost when the machine goes.
const clockEvery = time.Minute

// clockSlack is how far the machine's clock may be behind before it is said: a second is put in now and then (a leap second).
const clockSlack = 2 * time.Second

// openClock begins the line of a run, not before the last run's. A file that can't be read is no reason to forget about it.
func openClock(stateDir string, log *slog.Logger) (clock.Clock, error) {
	path := filepath.Join(stateDir, clockFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return clock.New(time.Time{}), nil
	}
	if err != nil {
		return clock.Clock{}, fmt.Errorf("reading what the clock had come to: %w", err)
	}
	last, err := time.Parse(time.RFC3339Nano, strings.TrimSpace(string(data)))
	if err != nil {
		return clock.Clock{}, fmt.Errorf("reading what the clock had come to: %s is no time: see that the machine's clock is right, then remove the file", path)
	}
	c := clock.New(last)
	if behind := c.Behind(); behind > clockSlack {
		log.Warn("the machine's clock is behind what the last run had come to; things end by that", "behind", behind, "file", path)
	}
	return c, nil
}

// keepClock writes down what the line comes to until ctx ends, and once more then, and says when the machine's clock falls behind.
func (s *Supervisor) keepClock(ctx context.Context) {
	tick := time.NewTicker(clockEvery)
	defer tick.Stop()
	told := s.clock.Behind() > clockSlack // at the start
	for {
		if err := s.writeClock(); err != nil {
			s.config.Log.Error("what the clock has come to can't be written down", "err", err)
		}
		select {
		case <-ctx.Done():
			if err := s.writeClock(); err != nil {
				s.config.Log.Error("what the clock has come to can't be written down", "err", err)
			}
			return
		case <-tick.C:
		}
		behind := s.clock.Behind()
		switch {
		case behind > clockSlack && !told:
			s.config.Log.Warn("the machine's clock was set back; things go on to end as before", "behind", behind)
		case behind <= clockSlack && told:
			s.config.Log.Info("the machine's clock is no longer behind")
		}
		told = behind > clockSlack
	}
}

// writeClock replaces the file as a whole, so that a machine that goes meanwhile leaves a whole one.
func (s *Supervisor) writeClock() error {
	path := filepath.Join(s.config.StateDir, clockFile)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, s.clock.Line().Format(time.RFC3339Nano))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
