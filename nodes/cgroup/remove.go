package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Remove kills what is left in a group and removes it. A group that isn't there is no error: runsc removes its own,
// except after a create that failed.
func (t *Tree) Remove(ctx context.Context, id string) error {
	dirs, err := t.dirs(id)
	if err != nil {
		return err
	}
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, removeGroup(ctx, dir))
	}
	return errors.Join(errs...)
}

// Purge removes every group of the instance, then the parent.
func (t *Tree) Purge(ctx context.Context) error {
	names, err := t.List()
	if err != nil {
		return err
	}
	for _, id := range names {
		if err := t.Remove(ctx, id); err != nil {
			return err
		}
	}
	var errs []error
	for _, dir := range t.parents() {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("removing control group %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}

// removeGroup empties and removes one directory with all groups below it. Killed processes take a moment to
// leave, and nothing on version 1 tells when: so it looks again every few milliseconds.
func removeGroup(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("removing control group: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeGroup(ctx, filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("removing control group %s: %w", dir, err)
		}
		if err := killAll(dir); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing control group %s: still has processes: %w", dir, ctx.Err())
		case <-tick.C:
		}
	}
}

func killAll(dir string) error {
	if err := write(filepath.Join(dir, "cgroup.kill"), "1"); err == nil {
		return nil
	}
	pids, err := fields(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	for _, s := range pids {
		pid, err := strconv.Atoi(s)
		if err != nil || pid <= 1 || pid == os.Getpid() {
			continue // 0 is a process outside our pid namespace
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("killing process %d of %s: %w", pid, dir, err)
		}
	}
	return nil
}
