package decisions

import (
	"context"
	"database/sql"
	"math"
	"os"
	"path/filepath"
	"strings"
	"uuid"
)

func newUUID() string { return uuid.NewV7().String() }

// bootID names the machine's present life. It is read before any cage.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return newUUID() // then every start counts as one after a crash
	}
	return strings.TrimSpace(string(b))
}

// identify finds out which file this is, whether its numbers can be believed, and begins a new life of it. They can, when file
// and ledger say the same life, and either the machine has not gone down since or both were closed. Otherwise every number of
// the reserved blocks may have been drawn: they are left out, and said to be unsure.
func (f *file) identify(db *sql.DB) error {
	var id string
	var life, acked, last uint64
	if err := db.QueryRow(`SELECT id, life, acked, (SELECT coalesce(max(seq), 0) FROM decisions) FROM head`).Scan(&id, &life, &acked, &last); err != nil {
		return err
	}
	orgs, err := readOrgs(db)
	if err != nil {
		return err
	}
	if f.run != "" && f.id == id && f.life == life {
		for org, n := range orgs { // the same file again after a failed write, which may have been a whole one
			now := f.orgs[org]
			f.orgs[org] = numbers{max(n.next, now.next), max(n.written, now.written)}
			f.stale[org] = true
		}
		f.seq = max(f.seq, last)
		return nil
	}
	path := filepath.Join(f.dir, ledgerName)
	h, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	b, err := f.believe(h, id, life)
	if err == nil {
		b.orgs = orgs
		err = f.begin(db, h, identity{id: id, life: life + 1, run: newUUID(), began: max(acked, last) + 1}, b)
	}
	if err != nil {
		h.Close()
	}
	return err
}

// A belief is what file and ledger say together.
type belief struct {
	orgs    map[string]numbers
	slots   map[string]*slot
	trusted bool
	mine    bool // the ledger is the one that this process wrote
}

// believe reads the ledger.
func (f *file) believe(h *os.File, id string, life uint64) (belief, error) {
	none := belief{slots: map[string]*slot{}, trusted: life == 0}
	info, err := h.Stat()
	if err != nil {
		return none, err
	}
	if info.Size() == 0 {
		return none, nil
	}
	head, slots, err := readLedger(h)
	if err != nil || head.id != id {
		return none, nil // of another file, or half written
	}
	mine := f.run != "" && head == f.book.Load().head
	return belief{slots: slots, trusted: head.life == life && (head.clean || head.boot == f.boot), mine: mine}, nil
}

// begin starts a life.
func (f *file) begin(db *sql.DB, h *os.File, now identity, b belief) error {
	orgs, slots, trusted, mine := b.orgs, b.slots, b.trusted, b.mine
	l := newLedger()
	place := 0
	for org, s := range slots {
		s.place = place
		place++
		l.slots[org] = s
	}
	f.carry(l, mine)
	for org := range orgs {
		if _, err := l.slot(org); err != nil {
			return err
		}
	}
	f.book.Store(l)
	f.orgs = orgs
	clear(f.stale)
	for org := range orgs {
		f.stale[org] = true // some of it may be known from rows alone
	}
	if !trusted {
		for org, s := range l.slots {
			drawn := f.settled(org).next - 1
			end := max(s.reserved, drawn)
			if s.reserved == 0 {
				end = drawn + block // there was no ledger to say
			}
			s.counts.unsure += end - drawn
			s.reserved = end
		}
	}
	if _, err := db.Exec(`UPDATE head SET life = ?`, now.life); err != nil {
		return err
	}
	if err := l.attach(h, ledgerHead{id: now.id, boot: f.boot, life: now.life}); err != nil {
		return err
	}
	f.identity, f.seq, f.moved, f.told = now, now.began-1, false, false
	return f.adoptCounts(db)
}

// carry takes over what was counted while no file could be opened, or after the last that a moved one told. mine: l was read from
// the very file to which it was written.
func (f *file) carry(l *ledger, mine bool) {
	old := f.book.Load()
	old.mu.Lock()
	defer old.mu.Unlock()
	for org, s := range old.slots {
		if mine || s.counts.lost == s.told.lost {
			continue
		}
		to, err := l.slot(org)
		if err != nil {
			continue
		}
		to.counts.lost += s.counts.lost - s.told.lost
		to.counts.budget += s.counts.budget - s.told.budget
	}
	if old.file != nil {
		old.file.Close()
		old.file = nil
	}
}

// adoptCounts makes rows of what an earlier life counted, and tells what each org holds.
func (f *file) adoptCounts(db *sql.DB) error {
	if err := f.readCounts(db); err != nil {
		return err
	}
	held, err := sizes(context.Background(), db, math.MaxInt64)
	if err == nil {
		f.opened(held)
	}
	return err
}

func (f *file) readCounts(db *sql.DB) error {
	f.counts = make(map[string]*fold)
	rows, err := db.Query(`SELECT id, org FROM counts`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		row := &fold{}
		if err := rows.Scan(&row.id, &row.org); err != nil {
			return err
		}
		f.counts[row.id] = row // of no time: it is over
	}
	return rows.Err()
}

// readOrgs adds to the numbers on disk those of the rows that came after them.
func readOrgs(db *sql.DB) (map[string]numbers, error) {
	rows, err := db.Query(`SELECT org, max(next), sum(written) FROM (
		SELECT org, next, written FROM orgs
		UNION ALL SELECT d.org, max(d.num) + 1, count(*) FROM decisions d LEFT JOIN orgs o ON o.org = d.org WHERE d.num >= coalesce(o.next, 1) GROUP BY d.org
	) GROUP BY org`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := make(map[string]numbers)
	for rows.Next() {
		var org string
		var n numbers
		if err := rows.Scan(&org, &n.next, &n.written); err != nil {
			return nil, err
		}
		all[org] = n
	}
	return all, rows.Err()
}
