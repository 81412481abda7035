package edge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"uuid"

	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// usageEvery is how often what was counted is written down and told to control: as much may be forgotten when the machine goes.
const usageEvery = time.Second

// usage keeps the counts of the month over the life of the process, and tells them to control. Counts only grow and belong to the
// file: told twice they count once.
type usage struct {
	flows *flows.Table
	file  string
	id    string
	now   func() time.Time
	log   *slog.Logger

	mu        sync.Mutex
	written   []flows.Usage
	limits    map[string]feed.Limits
	elsewhere map[string]role.KnownUsage // by org: what control said last
}

// usageFile is what is in the file.
type usageFile struct {
	ID   string        `json:"id"`
	Rows []flows.Usage `json:"rows"`
}

// openUsage reads what was counted before, in dir, or begins to count.
func openUsage(dir string, table *flows.Table, now func() time.Time, log *slog.Logger) (*usage, error) {
	u := &usage{flows: table, file: filepath.Join(dir, "usage.json"), now: now, log: log, elsewhere: make(map[string]role.KnownUsage)}
	data, err := os.ReadFile(u.file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading what was counted: %w", err)
	}
	var before usageFile
	if err != nil || json.Unmarshal(data, &before) != nil || before.ID == "" {
		if err == nil {
			log.Error("what was counted before is damaged; counting begins anew, beside what control has")
		}
		u.id = "use_" + uuid.NewV7().String()
		return u, u.write(nil)
	}
	u.id, u.written = before.ID, before.Rows
	table.Counted(before.Rows)
	return u, nil
}

// write puts the counts in place of the old ones, in one step.
func (u *usage) write(rows []flows.Usage) error {
	data, err := json.Marshal(usageFile{u.id, rows})
	if err != nil {
		return err
	}
	if err := os.WriteFile(u.file+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(u.file+".new", u.file)
}

// save writes what was counted since.
func (u *usage) save() {
	u.mu.Lock()
	defer u.mu.Unlock()
	rows := u.flows.Usage()
	if slices.Equal(rows, u.written) {
		return
	}
	if err := u.write(rows); err != nil {
		u.log.Error("what was counted can't be written down", "err", err)
		return
	}
	u.written = rows
}

// run saves until ctx ends, and then once more.
func (u *usage) run(ctx context.Context) error {
	tick := time.NewTicker(usageEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			u.save()
			return nil
		case <-tick.C:
			u.save()
		}
	}
}

// ship tells control over one link what was counted, whenever that has changed.
func (u *usage) ship(ctx context.Context, conn *link.Conn) {
	tick := time.NewTicker(usageEvery)
	defer tick.Stop()
	var told []flows.Usage
	for {
		if rows := u.flows.Usage(); !slices.Equal(rows, told) {
			if err := u.tell(ctx, conn, rows); err == nil {
				told = rows
			} else if ctx.Err() == nil {
				u.log.Warn("what was counted could not be told", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-conn.Ended():
			return
		case <-tick.C:
		}
	}
}

// tell makes sure of the rows on disk first: control must never know of more than this file's next reader.
func (u *usage) tell(ctx context.Context, conn *link.Conn, rows []flows.Usage) error {
	u.save()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var known role.UsageKnown
	if err := conn.Call(ctx, role.ControlUsage, role.UsageReport{Source: u.id, Rows: rows}, &known); err != nil {
		return err
	}
	u.mu.Lock()
	for _, k := range known.Rows {
		if k.Month == flows.MonthOf(u.now()) {
			u.elsewhere[k.Org] = k
		}
	}
	u.mu.Unlock()
	mine := make([]flows.Usage, len(known.Rows))
	for i, k := range known.Rows {
		mine[i] = k.Usage
	}
	u.flows.Counted(mine) // more than is here: the file is an old one
	u.flows.Forget(mine)
	u.apply()
	return nil
}

// last tells what was counted up to the end.
func (u *usage) last(ctx context.Context, conn *link.Conn) {
	u.save()
	if conn == nil {
		return
	}
	if err := u.tell(ctx, conn, u.flows.Usage()); err != nil {
		u.log.Warn("what was counted could not be told", "err", err)
	}
}

// limit takes the limits of a new state.
func (u *usage) limit(all map[string]feed.Limits) {
	u.mu.Lock()
	u.limits = all
	u.mu.Unlock()
	u.apply()
}

// apply holds every org to its limits, with the newest word on what was counted elsewhere.
func (u *usage) apply() {
	u.mu.Lock()
	byOrg := make(map[string]flows.Limits, len(u.limits))
	for org, l := range u.limits {
		e := l.Edge(u.id)
		if k, ok := u.elsewhere[org]; ok && (k.Month > e.Month || k.Month == e.Month && k.Elsewhere > e.Elsewhere) {
			e.Month, e.Elsewhere = k.Month, k.Elsewhere
		}
		byOrg[org] = e
	}
	u.mu.Unlock()
	u.flows.SetLimits(byOrg)
}
