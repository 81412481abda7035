package decisions

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

const fileName = "spool.db"

// schema: seq orders the rows of this file, num those of one org, and only the second one says what is missing. orgs: next is the
// number that the org's next line draws, written how many of its numbers got a row. Both are as of the last rows that left: what
// has a number from next on and is still here comes on top, so that a commit writes nothing but its rows. counts are rows that still count. head has one row: life grows at each opening.
const schema = `
CREATE TABLE IF NOT EXISTS decisions (seq INTEGER PRIMARY KEY, org TEXT NOT NULL, num INTEGER NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS orgs (org TEXT PRIMARY KEY, next INTEGER NOT NULL, written INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counts (id TEXT PRIMARY KEY, org TEXT NOT NULL, size INTEGER NOT NULL, n INTEGER NOT NULL, until INTEGER NOT NULL,
	bytes_out INTEGER NOT NULL, bytes_in INTEGER NOT NULL, body BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS head (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, life INTEGER NOT NULL, acked INTEGER NOT NULL) STRICT;
INSERT INTO head (one, id, life, acked) VALUES (1, ?, 0, 0) ON CONFLICT DO NOTHING;`

// file is the SQLite file with its ledger. Its lock also orders the writer and the shipper, who share one connection.
type file struct {
	mu     sync.Mutex
	dir    string
	sync   string
	boot   string // of the machine
	now    func() time.Time
	opened func(held map[string]int64) // told what each org holds, once per file

	db   *sql.DB   // nil after a failed write, until the next use
	conn *sql.Conn // its one connection: transactions of database/sql cost as much as what is in them
	stmts
	broken error // why the last opening failed

	identity
	book   atomic.Pointer[ledger] // has a lock of its own: losses don't wait for a commit
	orgs   map[string]numbers
	seq    uint64 // last one given in this file
	counts map[string]*fold
	spare  map[string]numbers // of the draft under way: there is one at a time
	stale  map[string]bool    // orgs whose numbers on disk are older than their last row
	read   reading            // the last batch

	onDisk  os.FileInfo // the file that is open
	checked time.Time   // when it was last seen in its place
	moved   bool
	told    bool // the last state of a moved file is on its way
}

// stmts are those that each commit uses.
type stmts struct{ beginTx, commitTx, rollback, insert, count, heads, leave, acked *sql.Stmt }

// An identity is which file this is, and which opening of it.
type identity struct {
	id    string
	life  uint64
	run   string // random, of this opening
	began uint64 // rows before this one are of earlier lives
}

// numbers are those of one org.
type numbers struct{ next, written uint64 }

// folded is how many numbers were left out so far.
func (n numbers) folded() uint64 { return n.next - 1 - n.written }

// open connects. A wrong directory is an error, so that it isn't a new, empty spool somewhere.
func (f *file) open() error {
	if f.db != nil {
		return nil
	}
	err := f.connect()
	if err != nil {
		err = fmt.Errorf("opening spool %q: %w", f.dir, err)
	}
	f.broken = err
	return err
}

func (f *file) connect() error {
	path := filepath.Join(f.dir, fileName)
	h, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) // SQLite would make it 0644; its other files take this mode over
	if err != nil {
		return err
	}
	f.onDisk, err = h.Stat()
	h.Close()
	if err != nil {
		return err
	}
	// Exclusive locking is set before the first access in WAL mode: then there is no shared-memory file at all. The driver sorts
	// its _pragma values and applies the keys with names of their own after them, so this order is kept.
	q := url.Values{"_pragma": {"locking_mode(exclusive)"}, "_journal_mode": {"WAL"}, "_synchronous": {f.sync}, "_txlock": {"immediate"}}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+q.Encode())
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	if err := f.prepare(db); err != nil {
		db.Close()
		return err
	}
	f.db, f.checked = db, f.now()
	return nil
}

func (f *file) prepare(db *sql.DB) (err error) {
	if _, err = db.Exec(`PRAGMA temp_store = memory; PRAGMA trusted_schema = 0; PRAGMA cache_size = -1024; PRAGMA journal_size_limit = 4194304`); err != nil {
		return err
	}
	if _, err = db.Exec(schema, newUUID()); err != nil {
		return err
	}
	if err = f.identify(db); err != nil {
		return err
	}
	if f.conn, err = db.Conn(context.Background()); err != nil {
		return err
	}
	for stmt, text := range map[**sql.Stmt]string{
		&f.beginTx: `BEGIN IMMEDIATE`, &f.commitTx: `COMMIT`, &f.rollback: `ROLLBACK`,
		&f.insert: `INSERT INTO decisions (seq, org, num, size, body) VALUES (?, ?, ?, ?, ?)`,
		&f.count: `INSERT INTO counts (id, org, size, n, until, bytes_out, bytes_in, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET n = n + excluded.n, until = excluded.until, bytes_out = bytes_out + excluded.bytes_out, bytes_in = bytes_in + excluded.bytes_in`,
		&f.heads: `INSERT INTO orgs (org, next, written) VALUES (?, ?, ?) ON CONFLICT (org) DO UPDATE SET next = excluded.next, written = excluded.written`,
		&f.leave: `DELETE FROM decisions WHERE seq <= ?`, &f.acked: `UPDATE head SET acked = max(acked, ?)`,
	} {
		if *stmt, err = f.conn.PrepareContext(context.Background(), text); err != nil {
			f.conn.Close()
			return err
		}
	}
	return nil
}

// inTx runs fn in a transaction. It isn't given up half way because a caller went away.
func (f *file) inTx(fn func(ctx context.Context) error) error {
	ctx := context.Background()
	if _, err := f.beginTx.ExecContext(ctx); err != nil {
		return err
	}
	err := fn(ctx)
	if err == nil {
		_, err = f.commitTx.ExecContext(ctx)
	}
	if err != nil {
		f.rollback.ExecContext(ctx) // of what the failure has rolled back already, perhaps
	}
	return err
}

// fail drops a connection that can no longer be trusted.
func (f *file) fail() {
	if f.db != nil {
		f.disconnect()
	}
}

// disconnect lets the file go. A statement that is open would hold it.
func (f *file) disconnect() error {
	var err error
	for _, s := range []*sql.Stmt{f.beginTx, f.commitTx, f.rollback, f.insert, f.count, f.heads, f.leave, f.acked} {
		err = errors.Join(err, s.Close())
	}
	err = errors.Join(err, f.conn.Close(), f.db.Close())
	f.db, f.read = nil, reading{}
	return err
}

// inPlace looks once a second whether the open file is still the one that the next start will find.
func (f *file) inPlace() error {
	if now := f.now(); !f.moved && (now.Sub(f.checked) >= time.Second || now.Before(f.checked)) {
		f.checked = now
		here, err := os.Stat(filepath.Join(f.dir, fileName))
		f.moved = err != nil || !os.SameFile(here, f.onDisk)
	}
	if f.moved {
		return ErrMoved
	}
	return nil
}

// A draft is what one commit changes of the numbers.
type draft struct {
	orgs map[string]numbers
	seq  uint64
}

// commit writes the batch in one transaction. The numbers of lines that were lost before are left out.
func (f *file) commit(batch []*entry) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.open(); err != nil {
		return err
	}
	if err := f.inPlace(); err != nil {
		return err
	}
	d, err := f.number(batch)
	if err != nil {
		return err
	}
	if err := f.write(batch); err != nil {
		f.fail()
		return fmt.Errorf("writing %d decisions: %w", len(batch), err)
	}
	f.adopt(d)
	return nil
}

// number gives each row its two numbers, all of reserved blocks.
func (f *file) number(batch []*entry) (draft, error) {
	if f.spare == nil {
		f.spare = make(map[string]numbers)
	}
	clear(f.spare)
	d := draft{orgs: f.spare, seq: f.seq}
	for _, e := range batch {
		if e.fold != nil {
			continue
		}
		n, ok := d.orgs[e.org]
		if !ok {
			n = f.settled(e.org)
		}
		d.seq++
		e.seq, e.num = d.seq, n.next
		d.orgs[e.org] = numbers{n.next + 1, n.written + 1}
	}
	for org, n := range d.orgs {
		if err := f.book.Load().reserve(org, n.next-1); err != nil {
			return d, err
		}
	}
	return d, nil
}

// settled are an org's numbers with every loss left out.
func (f *file) settled(org string) numbers {
	n := f.orgs[org]
	if n.next == 0 {
		n.next = 1
	}
	if lost := f.book.Load().losses(org).total(); lost > n.folded() {
		n.next += lost - n.folded()
	}
	return n
}

func (f *file) adopt(d draft) {
	f.seq = d.seq
	for org, n := range d.orgs {
		f.orgs[org], f.stale[org] = n, true
	}
}

func (f *file) write(batch []*entry) error {
	if len(batch) == 1 && batch[0].fold == nil {
		return f.writeRow(context.Background(), batch[0]) // a transaction of its own
	}
	return f.inTx(func(ctx context.Context) error {
		var counted []*entry
		for _, e := range batch {
			if e.fold != nil {
				counted = append(counted, e)
				continue
			}
			if err := f.writeRow(ctx, e); err != nil {
				return err
			}
		}
		return f.writeCounts(ctx, counted)
	})
}

func (f *file) writeRow(ctx context.Context, e *entry) error {
	_, err := f.insert.ExecContext(ctx, int64(e.seq), e.org, int64(e.num), e.size, e.body)
	return err
}

// writeHeads brings the numbers of orgs on disk up to their last row, before rows leave.
func (f *file) writeHeads(ctx context.Context, all map[string]numbers) error {
	for org, n := range all {
		if _, err := f.heads.ExecContext(ctx, org, int64(n.next), int64(n.written)); err != nil {
			return err
		}
	}
	return nil
}

// writeCounts adds what one batch counts, once per row.
func (f *file) writeCounts(ctx context.Context, batch []*entry) error {
	if len(batch) == 0 {
		return nil
	}
	sums := make(map[*fold]*entry, 1)
	for _, e := range batch {
		sum := sums[e.fold]
		if sum == nil {
			sum = &entry{}
			sums[e.fold] = sum
		}
		sum.n, sum.out, sum.in, sum.until = sum.n+e.n, sum.out+e.out, sum.in+e.in, max(sum.until, e.until)
	}
	for row, sum := range sums {
		if row.rolled { // it is a row already, perhaps a shipped one: what comes late counts on in another
			row.id, row.rolled = NewID(), false
		}
		if _, err := f.count.ExecContext(ctx, row.id, row.org, row.size, int64(sum.n), sum.until, sum.out, sum.in, row.body); err != nil {
			return err
		}
		f.counts[row.id] = row
	}
	for _, e := range batch {
		e.row = e.fold.id
	}
	return nil
}

// roll makes rows of the counts that are over: those of a minute, for somebody who asks those of some seconds, at the end all.
func (f *file) roll(age time.Duration) error {
	now := f.now()
	var over []string
	for id, row := range f.counts {
		if since := now.Sub(row.begun); since >= age || since < 0 {
			over = append(over, id)
		}
	}
	if len(over) == 0 {
		return nil
	}
	var d draft
	err := f.inTx(func(ctx context.Context) error {
		var batch []*entry
		for _, id := range over {
			e, err := f.counted(ctx, id)
			if errors.Is(err, sql.ErrNoRows) { // a commit that failed
				continue
			}
			if err != nil {
				return err
			}
			batch = append(batch, e)
			if _, err := f.conn.ExecContext(ctx, `DELETE FROM counts WHERE id = ?`, id); err != nil {
				return err
			}
		}
		var err error
		if d, err = f.number(batch); err != nil {
			return err
		}
		for _, e := range batch {
			if err := f.writeRow(ctx, e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	f.adopt(d)
	for _, id := range over {
		f.counts[id].rolled = true
		delete(f.counts, id)
	}
	return nil
}

// counted reads a count as the row that it becomes.
func (f *file) counted(ctx context.Context, id string) (*entry, error) {
	e := &entry{}
	var until int64
	var d Decision
	err := f.conn.QueryRowContext(ctx, `SELECT org, size, n, until, bytes_out, bytes_in, body FROM counts WHERE id = ?`, id).
		Scan(&e.org, &e.size, &d.Count, &until, &e.out, &e.in, &e.body)
	if err != nil {
		return nil, err
	}
	n := d.Count
	if err := json.Unmarshal(e.body, &d); err != nil {
		return nil, err
	}
	d.ID, d.Count, d.Until, d.Closed, d.BytesOut, d.BytesIn = id, n, time.UnixMicro(until).UTC(), true, e.out, e.in
	e.body = d.AppendJSON(nil)
	return e, nil
}

func (f *file) close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db == nil {
		return f.book.Load().close()
	}
	err := errors.Join(f.roll(0), f.settle())
	return errors.Join(err, f.disconnect(), f.book.Load().close())
}

// settle writes down which numbers were left out at the end.
func (f *file) settle() error {
	d := draft{orgs: make(map[string]numbers), seq: f.seq}
	for org := range f.orgs {
		d.orgs[org] = f.settled(org)
	}
	err := f.inTx(func(ctx context.Context) error { return f.writeHeads(ctx, d.orgs) })
	if err == nil {
		f.adopt(d)
		clear(f.stale)
	}
	return err
}
