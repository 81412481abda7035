package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"uuid"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*/*.sql
var migrations embed.FS

// Options say how a store is opened. The zero value opens one that is there.
type Options struct {
	Create bool             // make the tables where there are none; only dev and init say so
	Now    func() time.Time // default time.Now
	// Earliest is what things are old by, so that they are forgotten: never ahead, as what is forgotten doesn't come back. Default Now.
	Earliest func() time.Time
}

// A Store is open until Close. It is safe for concurrent use.
type Store struct {
	reads            // on the reading pool
	write    *sql.DB // SQLite: one connection, whose transactions take the write lock at once. PostgreSQL: the same pool.
	now      func() time.Time
	earliest func() time.Time
	lite     bool // SQLite

	mu            sync.Mutex
	appended      chan struct{} // closed and replaced at each append of decisions
	accessChanged chan struct{} // the same at each change of a request for access
	queued        chan struct{} // the same when something is queued for a webhook
}

// Open opens the store that dsn names: a path or file: URL for SQLite, postgres:// for PostgreSQL, and brings its tables up to date.
func Open(ctx context.Context, dsn string, opt Options) (*Store, error) {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Earliest == nil {
		opt.Earliest = opt.Now
	}
	s := &Store{now: opt.Now, earliest: opt.Earliest, appended: make(chan struct{}), accessChanged: make(chan struct{}), queued: make(chan struct{})}
	var err error
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		err = s.openPostgres(ctx, dsn, opt.Create)
	} else {
		err = s.openSQLite(ctx, strings.TrimPrefix(dsn, "file:"), opt.Create)
	}
	if err != nil {
		s.Close()
		return nil, wrap(err, "opening store")
	}
	return s, nil
}

func (s *Store) openSQLite(ctx context.Context, path string, create bool) error {
	if _, err := os.Stat(path); err != nil {
		if !os.IsNotExist(err) {
			return err
		}
		if !create {
			return fmt.Errorf("%w: %q", ErrNoStore, path)
		}
		// The driver would make it readable to others.
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		f.Close()
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	// A statement of many rows can be undone half way: what that needs is a file, unless temporary things are kept in memory.
	pragmas := url.Values{"_pragma": {"auto_vacuum(incremental)", "busy_timeout(10000)", "journal_mode(WAL)", "synchronous(NORMAL)", "foreign_keys(1)", "trusted_schema(0)", "temp_store(memory)"}}
	writing := url.Values{"_txlock": {"immediate"}, "_pragma": pragmas["_pragma"]}
	reading := url.Values{"_pragma": append([]string{"query_only(1)"}, pragmas["_pragma"][1], "foreign_keys(1)")}
	s.lite = true
	name := (&url.URL{Scheme: "file", Path: abs}).String()
	if s.write, err = sql.Open("sqlite", name+"?"+writing.Encode()); err != nil {
		return err
	}
	s.write.SetMaxOpenConns(1)
	if err := migrate(ctx, s.write, goose.DialectSQLite3, "sqlite", create); err != nil {
		return err
	}
	read, err := sql.Open("sqlite", name+"?"+reading.Encode())
	if err != nil {
		return err
	}
	read.SetMaxOpenConns(8)
	s.reads = reads{q: read}
	return read.PingContext(ctx)
}

func (s *Store) openPostgres(ctx context.Context, dsn string, create bool) error {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return fmt.Errorf("reading the PostgreSQL address: %w", ErrUnavailable) // the driver's text may hold the password
	}
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(8)
	db.SetConnMaxIdleTime(5 * time.Minute)
	s.write, s.reads = db, reads{q: db}
	return migrate(ctx, db, goose.DialectPostgres, "postgres", create)
}

func migrate(ctx context.Context, db *sql.DB, dialect goose.Dialect, dir string, create bool) error {
	files, err := fs.Sub(migrations, "migrations/"+dir)
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(dialect, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	if !create {
		// goose makes its table when it is asked for the version; look for ours first.
		var n int
		if err := db.QueryRowContext(ctx, `SELECT count(*) FROM orgs`).Scan(&n); err != nil {
			return fmt.Errorf("%w: %w", ErrNoStore, err)
		}
	}
	_, err = p.Up(ctx)
	return err
}

// Close ends every connection.
func (s *Store) Close() error {
	var first error
	if s.write != nil {
		first = s.write.Close()
	}
	if db, ok := s.q.(*sql.DB); ok && db != nil && db != s.write {
		if err := db.Close(); first == nil {
			first = err
		}
	}
	return first
}

// Ping asks the database a question.
func (s *Store) Ping(ctx context.Context) error {
	var one int
	return wrap(s.q.QueryRowContext(ctx, `SELECT 1`).Scan(&one), "asking the store")
}

// NewID returns a fresh id with that prefix: NewID("sbx") is sbx_<uuidv7>.
func NewID(prefix string) string {
	return prefix + "_" + uuid.NewV7().String()
}

// querier is what *sql.DB and *sql.Tx share.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// reads holds every read. Store reads committed rows; Tx reads its own writes too.
type reads struct{ q querier }

// rowScanner is what *sql.Row and *sql.Rows share.
type rowScanner interface{ Scan(dest ...any) error }

// list runs a query and scans each row.
func list[T any](ctx context.Context, q querier, scan func(rowScanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := []T{}
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

// Times are kept as microseconds since 1970: one text for both engines and no time zone to get wrong.
func micros(t time.Time) int64 { return t.UnixMicro() }

func fromMicros(n int64) time.Time { return time.UnixMicro(n).UTC() }

// optional is a time that may be absent.
func optional(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return micros(t)
}

func fromOptional(n sql.NullInt64) time.Time {
	if !n.Valid {
		return time.Time{}
	}
	return fromMicros(n.Int64)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
