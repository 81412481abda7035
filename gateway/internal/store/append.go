package store

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"strconv"
	"strings"

	"portreeve.dev/egress/decisions"
)

const (
	appendChunk = 50  // rows in one statement
	rowCost     = 200 // what a row takes beside its body, by and large: indices
)

// A Spooled decision says which life of which spool it comes from; the zero value is of none.
type Spooled struct {
	decisions.Decision
	Spool string
	Life  int64
}

// AppendDecisions keeps a batch that comes from no spool: all of it, or nothing.
func (s *Store) AppendDecisions(ctx context.Context, batch []decisions.Decision) error {
	all := make([]Spooled, len(batch))
	for i, d := range batch {
		all[i].Decision = d
	}
	return s.AppendShipment(ctx, Receipt{Rows: all})
}

// AppendShipment keeps what a spool sent, and what that says about its numbers: all of it, or nothing. A decision that is there
// already stays as it is, but for its first closing. One that names an unknown org, or an id that another org's decision has, is
// dropped; the rest is kept.
func (s *Store) AppendShipment(ctx context.Context, got Receipt) error {
	if len(got.Rows) == 0 && got.Spool == "" {
		return nil
	}
	tx, err := s.write.BeginTx(ctx, nil)
	if err != nil {
		return wrap(err, "appending decisions")
	}
	defer tx.Rollback()
	if err := s.appendRows(ctx, tx, got.Rows); err != nil {
		return err
	}
	plain := make([]decisions.Decision, len(got.Rows))
	for i, d := range got.Rows {
		plain[i] = d.Decision
	}
	if err := noteUses(ctx, tx, plain); err != nil {
		return err
	}
	if err := s.receive(ctx, tx, got); err != nil {
		return wrap(err, "counting decisions")
	}
	if err := tx.Commit(); err != nil {
		return wrap(err, "appending decisions")
	}
	s.announce()
	return nil
}

// A pending row is encoded, and has its place.
type pending struct {
	*Spooled
	seq  int64
	body string
}

func (s *Store) appendRows(ctx context.Context, tx *sql.Tx, rows []Spooled) error {
	byOrg := make(map[string][]*pending)
	latest := make(map[string]*pending, len(rows))
	for i := range rows {
		p := &pending{Spooled: &rows[i]}
		p.Time = p.Time.UTC()
		if before := latest[p.ID]; before != nil && before.Org == p.Org {
			if !before.Closed && p.Closed {
				before.Spooled = p.Spooled // both lines of a short flow make one row
			}
			continue
		}
		latest[p.ID] = p
		byOrg[p.Org] = append(byOrg[p.Org], p)
	}
	for _, org := range slices.Sorted(maps.Keys(byOrg)) { // two batches at once never wait for each other in a ring
		if err := s.appendOrg(ctx, tx, org, byOrg[org]); err != nil {
			return wrap(err, "writing decisions of %q", org)
		}
	}
	return nil
}

// appendOrg numbers and writes the rows of one org. Its row of counters stays locked until the commit: numbers appear in the
// order in which they were given, and a tail misses none.
func (s *Store) appendOrg(ctx context.Context, tx *sql.Tx, org string, rows []*pending) error {
	last, err := takeSeqs(ctx, tx, org, len(rows))
	if err != nil || last == 0 {
		return err // 0: there is no such org
	}
	for i, p := range rows {
		p.seq = last - int64(len(rows)-1-i)
		p.body = string(p.Decision.AppendJSON(nil))
	}
	var count, bytes int64
	for chunk := range slices.Chunk(rows, appendChunk) {
		n, grown, err := s.insertChunk(ctx, tx, chunk)
		if err != nil {
			return err
		}
		count, bytes = count+n, bytes+grown
	}
	_, err = tx.ExecContext(ctx, `UPDATE decision_orgs SET count = count + $2, bytes = bytes + $3 WHERE org_id = $1`, org, count, bytes)
	return err
}

func takeSeqs(ctx context.Context, tx *sql.Tx, org string, n int) (last int64, err error) {
	for range 2 {
		err = tx.QueryRowContext(ctx, `UPDATE decision_orgs SET seq = seq + $2 WHERE org_id = $1 RETURNING seq`, org, n).Scan(&last)
		if err != sql.ErrNoRows {
			return last, err
		}
		// Another one may make it at the same time: then there is one too.
		if _, err := tx.ExecContext(ctx, `INSERT INTO decision_orgs (org_id) SELECT id FROM orgs WHERE id = $1 ON CONFLICT DO NOTHING`, org); err != nil {
			return 0, err
		}
	}
	return 0, nil
}

const insertHead = `INSERT INTO decisions (id, org_id, seq, time, sandbox_id, verdict, host, flow, closed, spool, life, size, before, body) VALUES `

// The old size is kept beside the new one, as neither engine returns what an update replaced.
const insertTail = ` ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, closed = excluded.closed, body = excluded.body, before = decisions.size, size = excluded.size
	WHERE decisions.org_id = excluded.org_id AND decisions.closed = 0 AND excluded.closed = 1 RETURNING before, size`

// insertChunk returns how many rows are new, and by how many bytes the org has grown.
func (s *Store) insertChunk(ctx context.Context, tx *sql.Tx, rows []*pending) (count, grown int64, err error) {
	var text strings.Builder
	text.WriteString(insertHead)
	args := make([]any, 0, 13*len(rows))
	place := func(v any) { // SQLite looks a numbered place up by its name, among all of them
		args = append(args, v)
		if s.lite {
			text.WriteByte('?')
			return
		}
		text.WriteByte('$')
		text.WriteString(strconv.Itoa(len(args)))
	}
	for i, p := range rows {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteByte('(')
		flow := p.Verdict == "allow" && p.Layer != "dns" && p.Count == 0 && p.Until.IsZero()
		for _, v := range []any{p.ID, p.Org, p.seq, micros(p.Time), p.Sandbox, p.Verdict, p.Host, flag(flow), flag(p.Closed), p.Spool, p.Life, int64(len(p.body) + rowCost)} {
			place(v)
			text.WriteByte(',')
		}
		text.WriteString("0,")
		place(p.body)
		text.WriteByte(')')
	}
	text.WriteString(insertTail)
	found, err := tx.QueryContext(ctx, text.String(), args...)
	if err != nil {
		return 0, 0, err
	}
	defer found.Close()
	for found.Next() {
		var before, size int64
		if err := found.Scan(&before, &size); err != nil {
			return 0, 0, err
		}
		if before == 0 {
			count++
		}
		grown += size - before
	}
	return count, grown, found.Err()
}
