package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Limits is what a group must hold its sandbox to. Zero CPUMillis means no quota is expected.
type Limits struct {
	MemoryBytes int64
	Pids        int64
	CPUMillis   int64
}

// Confirm reads the limits of a group back from the kernel and fails unless each is as tight as asked. On version 2
// it first asks that an out-of-memory kill takes the whole sandbox: half of one is of no use to anybody.
func (t *Tree) Confirm(id string, want Limits) error {
	if t.v2 {
		file, err := t.file(id, "", "", "memory.oom.group")
		if err != nil {
			return err
		}
		if err := write(file, "1"); err != nil {
			return err
		}
	}
	memory, err := t.number(id, "memory", "memory.limit_in_bytes", "memory.max")
	if err != nil {
		return err
	}
	pids, err := t.number(id, "pids", "pids.max", "pids.max")
	if err != nil {
		return err
	}
	if memory > want.MemoryBytes {
		return fmt.Errorf("control group %q: memory limit is %s, not %d", id, shown(memory), want.MemoryBytes)
	}
	if pids > want.Pids {
		return fmt.Errorf("control group %q: process limit is %s, not %d", id, shown(pids), want.Pids)
	}
	if want.CPUMillis == 0 {
		return nil
	}
	millis, err := t.cpuMillis(id)
	if err != nil {
		return err
	}
	if millis > want.CPUMillis {
		return fmt.Errorf("control group %q: processor limit is %s thousandths, not %d", id, shown(millis), want.CPUMillis)
	}
	return nil
}

// OOMKills returns how many processes of the group the kernel killed for want of memory; 0 for a group that is gone.
func (t *Tree) OOMKills(id string) (uint64, error) {
	file, err := t.file(id, "memory", "memory.oom_control", "memory.events")
	if err != nil {
		return 0, err
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("reading out-of-memory kills: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if key, value, _ := strings.Cut(strings.TrimSpace(line), " "); key == "oom_kill" {
			return strconv.ParseUint(value, 10, 64)
		}
	}
	return 0, fmt.Errorf("control group %q: the kernel does not count out-of-memory kills", id)
}

const unlimited = int64(^uint64(0) >> 1)

func shown(n int64) string {
	if n == unlimited {
		return "none"
	}
	return strconv.FormatInt(n, 10)
}

func (t *Tree) number(id, controller, v1File, v2File string) (int64, error) {
	file, err := t.file(id, controller, v1File, v2File)
	if err != nil {
		return 0, err
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("reading limit: %w", err)
	}
	return parseLimit(string(b))
}

// parseLimit reads one limit; "max" and version 1's -1 are none.
func parseLimit(s string) (int64, error) {
	s = strings.TrimSpace(s)
	if s == "max" || s == "-1" {
		return unlimited, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("limit %q: not a number", s)
	}
	return n, nil
}

func (t *Tree) cpuMillis(id string) (int64, error) {
	quota, period := "", ""
	if t.v2 {
		file, err := t.file(id, "", "", "cpu.max")
		if err != nil {
			return 0, err
		}
		f, err := fields(file)
		if err != nil {
			return 0, err
		}
		if len(f) != 2 {
			return 0, fmt.Errorf("control group %q: cpu.max %q", id, f)
		}
		quota, period = f[0], f[1]
	} else {
		for file, to := range map[string]*string{"cpu.cfs_quota_us": &quota, "cpu.cfs_period_us": &period} {
			path, err := t.file(id, "cpu", file, "")
			if err != nil {
				return 0, err
			}
			b, err := os.ReadFile(path)
			if err != nil {
				return 0, fmt.Errorf("reading limit: %w", err)
			}
			*to = string(b)
		}
	}
	q, err := parseLimit(quota)
	if err != nil {
		return 0, err
	}
	p, err := parseLimit(period)
	if err != nil || p == 0 {
		return 0, fmt.Errorf("control group %q: period %q", id, period)
	}
	if q == unlimited {
		return unlimited, nil
	}
	return q * 1000 / p, nil
}
