package decisions

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	foldMinute = time.Minute // how long equal decisions are counted in one row
	foldSoon   = time.Second // how old a count must be to be closed for somebody who asks
	foldKeys   = 256         // different decisions of one sandbox that are watched for being equal
)

// A foldKey is what makes decisions equal.
type foldKey struct {
	sandbox     string
	incarnation uint64
	layer, host string
	addr        string
	port        uint16
	verdict     string
	reason      string
	rule, from  string
}

func keyOf(d *Decision) foldKey {
	return foldKey{d.Sandbox, d.Incarnation, d.Layer, d.Host, d.Addr, d.Port, d.Verdict, d.Reason, d.Rule, d.RuleLayer}
}

// A fold is one row that counts. It is on disk as soon as it counts one.
type fold struct {
	id      string
	org     string
	begun   time.Time
	body    []byte
	size    int64
	charged atomic.Bool // its size is in the org's share
	rolled  bool        // it has become a row, and counts no more; under the file's lock
}

// A tally watches one key for a minute.
type tally struct {
	since time.Time
	seen  int
	fold  *fold
}

// folds say which decisions are counted instead of kept.
type folds struct {
	mu    sync.Mutex
	after int
	bySbx map[string]map[foldKey]*tally
	swept time.Time
}

func newFolds(c Config) *folds {
	return &folds{after: c.FoldAfter, bySbx: make(map[string]map[foldKey]*tally), swept: c.Now()}
}

// of returns the row in which d is counted, or nil if it gets a row of its own. more says that the row is there already, so that
// d costs no space. An allowed decision is counted only where its rule says so, and never with a secret; a denial from the
// second handful of equal ones on.
func (f *folds) of(d *Decision, now time.Time, size func(*Decision) (*fold, error)) (row *fold, more bool, err error) {
	denied := d.Verdict != "allow"
	if !denied && (!d.Fold || len(d.Secrets) > 0) {
		return nil, false, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sweep(now)
	t := f.tally(d, now)
	if t == nil {
		return nil, false, nil
	}
	if t.seen++; denied && t.seen <= f.after {
		return nil, false, nil
	}
	if t.fold != nil {
		return t.fold, true, nil
	}
	t.fold, err = size(d)
	return t.fold, false, err
}

func (f *folds) tally(d *Decision, now time.Time) *tally {
	key := keyOf(d)
	own := f.bySbx[d.Sandbox]
	if own == nil {
		own = make(map[foldKey]*tally)
		f.bySbx[d.Sandbox] = own
	}
	t := own[key]
	if t == nil {
		if len(own) >= foldKeys {
			return nil
		}
		t = &tally{since: now}
		own[key] = t
	}
	if age := now.Sub(t.since); age >= foldMinute || age < 0 {
		*t = tally{since: now}
	}
	return t
}

// drop makes the next equal decision begin a new row.
func (f *folds) drop(d *Decision, row *fold) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := f.bySbx[d.Sandbox][keyOf(d)]; t != nil && t.fold == row {
		t.fold = nil
	}
}

// sweep forgets what no longer counts.
func (f *folds) sweep(now time.Time) {
	if age := now.Sub(f.swept); age < foldMinute && age >= 0 {
		return
	}
	f.swept = now
	for sandbox, own := range f.bySbx {
		for key, t := range own {
			if age := now.Sub(t.since); age >= foldMinute || age < 0 {
				delete(own, key)
			}
		}
		if len(own) == 0 {
			delete(f.bySbx, sandbox)
		}
	}
}
