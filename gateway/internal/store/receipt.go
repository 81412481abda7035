package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"portreeve.dev/egress/decisions"
)

// A Receipt is a shipment as control understood it.
type Receipt struct {
	Node, Spool, Run string
	Life             int64
	Error            string
	Orgs             map[string]decisions.OrgState
	Nums             map[string][]uint64 // the numbers that came with a row that could be kept, by org
	Oldest           time.Time           // of what still waits; zero: nothing does
	Rows             []Spooled
}

// A Span is a range of numbers, both ends included.
type Span struct {
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

// maxSpans bounds what is kept of the missing ranges; they are counted beyond that too.
const maxSpans = 256

// A Spool is a file of decisions at an edge, as far as it is known.
type Spool struct {
	ID, Node, Run string
	Life, Settled int64
	Error         string
	SeenAt        time.Time
	EndedAt       time.Time // another file has taken its place
}

// Numbers are what is known of one org's lines in one spool. Highest-Received of them are lost: that isn't counted by whoever
// lost them, but what is missing among those that arrived.
type Numbers struct {
	Spool
	Highest  uint64
	Received uint64
	Reserved uint64 // no higher one was drawn
	Written  uint64 // by the edge's own word
	Budget   uint64 // of the lost: beyond a sandbox's budget
	Unsure   uint64 // of the lost: perhaps never drawn
	Bytes    int64  // held at the edge
	Oldest   time.Time
	Missing  []Span // the newest ones
}

// Lost is how many lines are missing for certain.
func (n Numbers) Lost() uint64 {
	lost := n.Highest - n.Received
	return lost - min(lost, n.Unsure)
}

// receive brings a spool's books up to date.
func (s *Store) receive(ctx context.Context, tx *sql.Tx, got Receipt) error {
	if got.Spool == "" {
		return nil
	}
	now := micros(s.now())
	_, err := tx.ExecContext(ctx, `INSERT INTO decision_spools (id, node, life, run, settled, error, seen_at) VALUES ($1, $2, $3, $4, 0, $5, $6)
		ON CONFLICT (id) DO UPDATE SET node = excluded.node, life = excluded.life, run = excluded.run, error = excluded.error, seen_at = excluded.seen_at, ended_at = NULL`,
		got.Spool, got.Node, got.Life, got.Run, got.Error, now)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `UPDATE decision_spools SET ended_at = $3 WHERE node = $1 AND id <> $2 AND ended_at IS NULL`, got.Node, got.Spool, now); err != nil {
		return err
	}
	for _, org := range slices.Sorted(maps.Keys(got.Orgs)) {
		if err := receiveOrg(ctx, tx, org, got); err != nil {
			return err
		}
	}
	return nil
}

func receiveOrg(ctx context.Context, tx *sql.Tx, org string, got Receipt) error {
	state := got.Orgs[org]
	n, err := scanNumbers(tx.QueryRowContext(ctx, selectNumbers+` WHERE n.spool = $1 AND n.org_id = $2`, got.Spool, org))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	before, known := n, err == nil
	n.take(state.Upto, got.Nums[org])
	n.Reserved, n.Written, n.Budget, n.Unsure, n.Bytes, n.Oldest = state.Reserved, state.Written, state.Budget, state.Unsure, state.Bytes, got.Oldest
	if known && n.same(before) {
		return nil
	}
	missing, err := json.Marshal(n.Missing)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO decision_numbers (spool, org_id, highest, received, reserved, written, budget, unsure, bytes, oldest, missing)
		SELECT CAST($1 AS TEXT), o.id, CAST($3 AS BIGINT), CAST($4 AS BIGINT), CAST($5 AS BIGINT), CAST($6 AS BIGINT), CAST($7 AS BIGINT), CAST($8 AS BIGINT),
			CAST($9 AS BIGINT), CAST($10 AS BIGINT), CAST($11 AS TEXT) FROM orgs o WHERE o.id = $2
		ON CONFLICT (spool, org_id) DO UPDATE SET highest = excluded.highest, received = excluded.received, reserved = excluded.reserved, written = excluded.written,
			budget = excluded.budget, unsure = excluded.unsure, bytes = excluded.bytes, oldest = excluded.oldest, missing = excluded.missing`,
		got.Spool, org, int64(n.Highest), int64(n.Received), int64(n.Reserved), int64(n.Written), int64(n.Budget), int64(n.Unsure), n.Bytes, optional(n.Oldest), string(missing))
	return err
}

func (n Numbers) same(b Numbers) bool {
	return n.Highest == b.Highest && n.Received == b.Received && n.Reserved == b.Reserved && n.Written == b.Written && n.Budget == b.Budget &&
		n.Unsure == b.Unsure && n.Bytes == b.Bytes && n.Oldest.Equal(b.Oldest)
}

// take notes the numbers that arrived. Every one up to upto that never does is missing from now on; one that comes late is
// missing no more, and one that comes again changes nothing.
func (n *Numbers) take(upto uint64, arrived []uint64) {
	arrived = slices.Compact(slices.Sorted(slices.Values(arrived)))
	for _, num := range arrived {
		if num <= n.Highest {
			n.fill(num)
			continue
		}
		n.miss(n.Highest+1, num-1)
		n.Highest = num
		n.Received++
	}
	if upto > n.Highest {
		n.miss(n.Highest+1, upto)
		n.Highest = upto
	}
}

func (n *Numbers) miss(first, last uint64) {
	if first > last {
		return
	}
	if end := len(n.Missing) - 1; end >= 0 && n.Missing[end].Last+1 == first {
		n.Missing[end].Last = last
		return
	}
	if n.Missing = append(n.Missing, Span{first, last}); len(n.Missing) > maxSpans {
		n.Missing = n.Missing[1:]
	}
}

func (n *Numbers) fill(num uint64) {
	for i, m := range n.Missing {
		if num < m.First || num > m.Last {
			continue
		}
		var rest []Span
		if m.First < num {
			rest = append(rest, Span{m.First, num - 1})
		}
		if num < m.Last {
			rest = append(rest, Span{num + 1, m.Last})
		}
		n.Missing = slices.Replace(n.Missing, i, i+1, rest...)
		n.Received++
		return
	}
}

const selectNumbers = `SELECT s.id, s.node, s.run, s.life, s.settled, s.error, s.seen_at, s.ended_at, n.highest, n.received, n.reserved, n.written, n.budget, n.unsure, n.bytes,
	n.oldest, n.missing FROM decision_numbers n JOIN decision_spools s ON s.id = n.spool`

func scanNumbers(row rowScanner) (Numbers, error) {
	var n Numbers
	var seen int64
	var ended, oldest sql.NullInt64
	var missing string
	err := row.Scan(&n.ID, &n.Node, &n.Run, &n.Life, &n.Settled, &n.Error, &seen, &ended, &n.Highest, &n.Received, &n.Reserved, &n.Written, &n.Budget, &n.Unsure, &n.Bytes, &oldest, &missing)
	if err != nil {
		return n, err
	}
	n.SeenAt, n.EndedAt, n.Oldest = fromMicros(seen), fromOptional(ended), fromOptional(oldest)
	return n, json.Unmarshal([]byte(missing), &n.Missing)
}

// Numbers lists what is known of an org's lines in each spool, the newest spool first.
func (r reads) Numbers(ctx context.Context, org string) ([]Numbers, error) {
	all, err := list(ctx, r.q, scanNumbers, selectNumbers+` WHERE n.org_id = $1 ORDER BY s.seen_at DESC, s.id`, org)
	return all, wrap(err, "reading the books of %q", org)
}

// SpoolNumbers returns what is known of one spool, by org.
func (r reads) SpoolNumbers(ctx context.Context, spool string) (map[string]Numbers, error) {
	rows, err := r.q.QueryContext(ctx, `SELECT org_id, highest, reserved FROM decision_numbers WHERE spool = $1`, spool)
	if err != nil {
		return nil, wrap(err, "reading the books of spool %q", spool)
	}
	defer rows.Close()
	all := make(map[string]Numbers)
	for rows.Next() {
		var org string
		var n Numbers
		if err := rows.Scan(&org, &n.Highest, &n.Reserved); err != nil {
			return nil, wrap(err, "reading the books of spool %q", spool)
		}
		all[org] = n
	}
	return all, wrap(rows.Err(), "reading the books of spool %q", spool)
}

// Spool returns what is known of one.
func (r reads) Spool(ctx context.Context, id string) (Spool, error) {
	p := Spool{ID: id}
	var seen int64
	var ended sql.NullInt64
	err := r.q.QueryRowContext(ctx, `SELECT node, run, life, settled, error, seen_at, ended_at FROM decision_spools WHERE id = $1`, id).
		Scan(&p.Node, &p.Run, &p.Life, &p.Settled, &p.Error, &seen, &ended)
	p.SeenAt, p.EndedAt = fromMicros(seen), fromOptional(ended)
	return p, wrap(err, "reading spool %q", id)
}

// SpoolFails notes that a node can't open a spool; which one that would be, nobody knows.
func (s *Store) SpoolFails(ctx context.Context, node, why string) error {
	_, err := s.write.ExecContext(ctx, `UPDATE decision_spools SET error = $2, seen_at = $3 WHERE node = $1 AND ended_at IS NULL`, node, why, micros(s.now()))
	return wrap(err, "noting a spool of %q that fails", node)
}
