package decisions

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"uuid"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

const fileName = "decisions.db"

// schema: head has one row. next is the number that the next call draws, written how many numbers got a row; both change in the
// transaction of the rows, so that a restart neither repeats a number nor forgets a gap.
const schema = `
CREATE TABLE IF NOT EXISTS decisions (seq INTEGER PRIMARY KEY, org TEXT NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS head (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, next INTEGER NOT NULL, written INTEGER NOT NULL, acked INTEGER NOT NULL) STRICT;
INSERT INTO head (one, id, next, written, acked) VALUES (1, ?, 1, 0, 0) ON CONFLICT DO NOTHING;`

// file is the SQLite file. Its lock also orders the writer and the shipper, who share one connection.
type file struct {
	mu     sync.Mutex
	path   string
	sync   string
	db     *sql.DB // nil after a failed write, until the next use
	insert *sql.Stmt
	head   *sql.Stmt

	id      string
	next    uint64
	written uint64
}

// openFile opens or makes the file; the directory has to exist, so that a wrong path isn't a new, empty spool somewhere.
func openFile(dir string, powerSafe bool) (*file, error) {
	f := &file{path: filepath.Join(dir, fileName), sync: "NORMAL"}
	if powerSafe {
		f.sync = "FULL"
	}
	h, err := os.OpenFile(f.path, os.O_CREATE|os.O_RDWR, 0o600) // SQLite would make it 0644; its other files take this mode over
	if err != nil {
		return nil, fmt.Errorf("opening spool: %w", err)
	}
	h.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

// open connects. Exclusive locking is set before the first access in WAL mode: then there is no shared-memory file at all.
// The driver sorts its _pragma values and applies the keys with names of their own after them, so this order is kept.
func (f *file) open() error {
	if f.db != nil {
		return nil
	}
	q := url.Values{"_pragma": {"locking_mode(exclusive)"}, "_journal_mode": {"WAL"}, "_synchronous": {f.sync}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: f.path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return fmt.Errorf("opening spool %q: %w", f.path, err)
	}
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	if err := f.prepare(db); err != nil {
		db.Close()
		return fmt.Errorf("opening spool %q: %w", f.path, err)
	}
	f.db = db
	return nil
}

func (f *file) prepare(db *sql.DB) (err error) {
	if _, err = db.Exec(`PRAGMA temp_store = memory; PRAGMA trusted_schema = 0; PRAGMA cache_size = -1024; PRAGMA journal_size_limit = 4194304`); err != nil {
		return err
	}
	if _, err = db.Exec(schema, uuid.NewV7().String()); err != nil {
		return err
	}
	var next, written uint64
	if err = db.QueryRow(`SELECT id, next, written FROM head`).Scan(&f.id, &next, &written); err != nil {
		return err
	}
	f.next, f.written = max(f.next, next), max(f.written, written) // in memory they can be ahead: numbers lost since
	if f.insert, err = db.Prepare(`INSERT INTO decisions (seq, org, size, body) VALUES (?, ?, ?, ?)`); err != nil {
		return err
	}
	f.head, err = db.Prepare(`UPDATE head SET next = ?, written = ?`)
	return err
}

// fail drops a connection that can no longer be trusted.
func (f *file) fail() {
	if f.db != nil {
		f.db.Close()
		f.db = nil
	}
}

// commit writes the batch in one transaction, after leaving out the skipped numbers. All of them are used up either way.
func (f *file) commit(batch []*entry, skipped *atomic.Uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	first := f.next + skipped.Swap(0)
	f.next = first + uint64(len(batch))
	if err := f.open(); err != nil {
		return err
	}
	if err := f.write(batch, first); err != nil {
		f.fail()
		return fmt.Errorf("writing %d decisions: %w", len(batch), err)
	}
	f.written += uint64(len(batch))
	return nil
}

func (f *file) write(batch []*entry, first uint64) error {
	ctx := context.Background() // a commit isn't given up half way because one of its callers went away
	tx, err := f.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	insert := tx.StmtContext(ctx, f.insert)
	for i, e := range batch {
		if _, err := insert.ExecContext(ctx, int64(first)+int64(i), e.org, e.size, e.body); err != nil {
			return err
		}
	}
	if _, err := tx.StmtContext(ctx, f.head).ExecContext(ctx, int64(f.next), int64(f.written)+int64(len(batch))); err != nil {
		return err
	}
	return tx.Commit()
}

// lost is how many of the numbers drawn so far have no row.
func (f *file) lost(skipped *atomic.Uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.next - 1 - f.written + skipped.Load()
}

func (f *file) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db == nil {
		return nil
	}
	err := errors.Join(f.insert.Close(), f.head.Close(), f.db.Close())
	f.db = nil
	return err
}
