package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var (
	ErrNotFound    = errors.New("not found")
	ErrConflict    = errors.New("already there, or still in use")
	ErrVersion     = errors.New("the stored version is another")
	ErrBusy        = errors.New("the store is busy; the same call may be made again")
	ErrUnavailable = errors.New("the store can't be reached")
	ErrFull        = errors.New("the store's disk is full")
	ErrNoStore     = errors.New("there is no store here")
	ErrNoPrincipal = errors.New("a change needs a principal with an org")
	ErrUnaudited   = errors.New("a change needs an audit entry")
	ErrLimit       = errors.New("the org has as many as it may")
	ErrNotPlatform = errors.New("a change of the platform needs a principal of the platform")
)

// wrap names what was being done, and turns a driver's error into a sentinel by its code.
func wrap(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	doing = fmt.Sprintf(doing, args...)
	if sentinel := classify(err); sentinel != nil && !errors.Is(err, sentinel) {
		return fmt.Errorf("%s: %w: %w", doing, sentinel, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func classify(err error) error {
	var lite *sqlite.Error
	var pg *pgconn.PgError
	var network net.Error
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return ErrNotFound
	case errors.As(err, &lite):
		return classifySQLite(lite.Code())
	case errors.As(err, &pg):
		return classifyPostgres(pg.Code)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return nil // the caller's own
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, sql.ErrConnDone), errors.As(err, &network), errors.Is(err, net.ErrClosed):
		return ErrUnavailable
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return ErrUnavailable
	}
	return nil
}

func classifySQLite(code int) error {
	switch code {
	case sqlite3.SQLITE_CONSTRAINT_UNIQUE, sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return ErrConflict
	}
	switch code & 0xff { // the rest of an extended code is detail
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return ErrBusy
	case sqlite3.SQLITE_FULL:
		return ErrFull
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return ErrUnavailable
	}
	return nil
}

// classifyPostgres reads SQLSTATE, PostgreSQL manual appendix A.
func classifyPostgres(state string) error {
	switch state {
	case "23505", "23503": // unique, foreign key
		return ErrConflict
	case "40001", "40P01", "55P03": // serialization, deadlock, lock not available
		return ErrBusy
	case "53100": // disk full
		return ErrFull
	}
	switch {
	case strings.HasPrefix(state, "08"), strings.HasPrefix(state, "53"), strings.HasPrefix(state, "57P"):
		return ErrUnavailable
	}
	return nil
}
