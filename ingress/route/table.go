package route

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// What a lookup can say beside a record.
var (
	ErrUnknown = errors.New("there is no such tunnel")
	ErrStale   = errors.New("whether there is such a tunnel can't be told now")
	ErrGone    = errors.New("this tunnel has ended")
)

// TableConfig of a Table. The zero value is usable.
type TableConfig struct {
	FreshFor time.Duration        // how long silence of control is bearable; default 10 s
	Keep     time.Duration        // how long an ended tunnel is remembered as such; default 24 h
	Now      func() time.Time     // default time.Now
	Boot     func() time.Duration // since boot, goes on while the machine sleeps; default CLOCK_BOOTTIME
	// OnChange, if set, is told of each change of a record after it is in force. old is nil for a new host; now is never
	// nil and Gone at the end. It is called by one goroutine at a time and must not call the table's writers.
	OnChange func(old, now *Record)
}

// A Table holds the routes. It is safe for concurrent use; readers never wait.
type Table struct {
	cfg  TableConfig
	beat atomic.Int64 // when control was last heard from, by the boot clock; 0 for never

	hosts atomic.Pointer[map[string]*entry] // replaced when hosts come or go

	mu      sync.Mutex // held by writers
	sweepAt time.Time  // when ended hosts are looked for again
}

type entry struct {
	record atomic.Pointer[Record]
	endsAt time.Time // of an entry that is gone: when it is forgotten; guarded by Table.mu
}

// NewTable returns an empty, stale Table.
func NewTable(c TableConfig) *Table {
	if c.FreshFor == 0 {
		c.FreshFor = 10 * time.Second
	}
	if c.Keep == 0 {
		c.Keep = 24 * time.Hour
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Boot == nil {
		c.Boot = bootClock
	}
	if c.OnChange == nil {
		c.OnChange = func(_, _ *Record) {}
	}
	t := &Table{cfg: c}
	t.hosts.Store(&map[string]*entry{})
	return t
}

func bootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Duration(1<<63 - 1) // no clock: everything is stale
	}
	return time.Duration(ts.Nano())
}

// Lookup returns the record of a host in normal form. With ErrGone it returns the record too, for what it may tell.
func (t *Table) Lookup(host string) (*Record, error) {
	e, ok := (*t.hosts.Load())[host]
	if !ok {
		if !t.Fresh() {
			return nil, ErrStale
		}
		return nil, ErrUnknown
	}
	r := e.record.Load()
	if r.State == Gone || !t.cfg.Now().Before(r.ExpiresAt) {
		return r, ErrGone
	}
	return r, nil
}

// Known reports whether the table has a host, alive or remembered as gone: those get a certificate.
func (t *Table) Known(host string) bool {
	_, ok := (*t.hosts.Load())[host]
	return ok
}

// Fresh reports whether control was heard from lately.
func (t *Table) Fresh() bool {
	beat := t.beat.Load()
	return beat != 0 && t.cfg.Boot()-time.Duration(beat) <= t.cfg.FreshFor
}

// Len returns the number of hosts, the remembered ones included.
func (t *Table) Len() int { return len(*t.hosts.Load()) }

// Heartbeat notes that control is there and that nothing changed.
func (t *Table) Heartbeat() { t.beat.Store(int64(max(t.cfg.Boot(), 1))) }

// Replace takes records as the whole state. Hosts that are missing from it have ended.
func (t *Table) Replace(records []Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	next, err := index(records)
	if err != nil {
		return err
	}
	for host, e := range *t.hosts.Load() {
		if r := e.record.Load(); next[host] == nil {
			next[host] = r.gone()
		}
	}
	t.apply(next)
	return nil
}

// Apply takes changes of single records.
func (t *Table) Apply(records ...Record) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	next, err := index(records)
	if err != nil {
		return err
	}
	t.apply(next)
	return nil
}

// index checks all records before any of them counts.
func index(records []Record) (map[string]*Record, error) {
	next := make(map[string]*Record, len(records))
	for i := range records {
		r := records[i]
		if err := r.Validate(); err != nil {
			return nil, err
		}
		if next[r.Host] != nil {
			return nil, fmt.Errorf("route %q is there twice", r.Host)
		}
		next[r.Host] = &r
	}
	return next, nil
}

// apply brings changes into force, then tells of them. The caller holds mu.
func (t *Table) apply(changed map[string]*Record) {
	type change struct{ old, now *Record }
	var told []change
	now := t.cfg.Now()
	hosts := t.grown(changed, now)
	for host, r := range changed {
		e := hosts[host]
		old := e.record.Load()
		if old != nil && (old.State == Gone || *old == *r) {
			continue // what has ended doesn't come back, and a host is never another tunnel's
		}
		if r.State == Gone {
			e.endsAt = now.Add(t.cfg.Keep)
		}
		e.record.Store(r)
		told = append(told, change{old, r})
	}
	t.hosts.Store(&hosts)
	t.Heartbeat()
	for _, c := range told {
		t.cfg.OnChange(c.old, c.now)
	}
}

// grown returns the hosts with an entry for each change, and now and then without those that ended long ago. A map that
// readers may have is never written to.
func (t *Table) grown(changed map[string]*Record, now time.Time) map[string]*entry {
	hosts, copied := *t.hosts.Load(), false
	own := func() {
		if !copied {
			hosts, copied = maps.Clone(hosts), true
		}
	}
	for host := range changed {
		if hosts[host] == nil {
			own()
			hosts[host] = &entry{}
		}
	}
	if now.Before(t.sweepAt) {
		return hosts
	}
	t.sweepAt = now.Add(time.Minute)
	for host, e := range *t.hosts.Load() {
		if changed[host] == nil && t.forgotten(e, now) {
			own()
			delete(hosts, host)
		}
	}
	return hosts
}

func (t *Table) forgotten(e *entry, now time.Time) bool {
	r := e.record.Load()
	if r.State == Gone {
		return now.After(e.endsAt)
	}
	return now.After(r.ExpiresAt.Add(t.cfg.Keep))
}
