package store_test

import (
	"database/sql"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/pressly/goose/v3"

	"portreeve.dev/gateway/internal/store"
)

// TestFirstVersionIsBroughtUpToDate opens stores that an earlier program left, with rows in them.
func TestFirstVersionIsBroughtUpToDate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	for name, c := range map[string]struct {
		driver, dsn string
		dialect     goose.Dialect
	}{
		"sqlite":   {"sqlite", path, goose.DialectSQLite3},
		"postgres": {"pgx", schema(t), goose.DialectPostgres},
	} {
		t.Run(name, func(t *testing.T) {
			files := os.DirFS(filepath.Join("migrations", name))
			all, err := fs.Glob(files, "*.sql")
			if err != nil || len(all) < 3 {
				t.Fatalf("%d migrations, %v", len(all), err)
			}
			old(t, c.driver, c.dsn, c.dialect, files)
			st := opened(t, c.dsn, store.Options{})
			if o, err := st.Org(t.Context(), "org_old"); err != nil || o.Slug != "old" {
				t.Errorf("the org of before: %+v, %v", o, err)
			}
			if all, err := st.Secrets(t.Context(), "org_old"); err != nil || len(all) != 0 {
				t.Errorf("secrets: %+v, %v", all, err)
			}
			if _, err := st.PlatformKey(t.Context(), "k", func() (store.PlatformKey, error) { return store.PlatformKey{Sealed: []byte("x")}, nil }); err != nil {
				t.Error(err)
			}
			if f, err := st.FeedState(t.Context()); err != nil || len(f.Orgs) != 1 || len(f.Orgs[0].Sandboxes) != 2 {
				t.Errorf("feed: %+v, %v", f, err)
			}
			if b, err := st.Sandbox(t.Context(), "org_old", "sbx_list"); err != nil || string(b.Own) != `{"rules":[]}` || b.OwnVersion != 1 {
				t.Errorf("a sandbox with a list of its own: %s version %d, %v", b.Own, b.OwnVersion, err)
			}
			if p, err := st.Policy(t.Context(), "org_old", "web"); err != nil || p.Version != 3 || p.Source != "" || p.Restored != 0 {
				t.Errorf("a policy: %+v, %v", p, err)
			}
			if b, err := st.Sandbox(t.Context(), "org_old", "sbx_none"); err != nil || b.Own != nil || b.OwnVersion != 0 {
				t.Errorf("a sandbox without one: %s version %d, %v", b.Own, b.OwnVersion, err)
			}
			opened(t, c.dsn, store.Options{}) // and again: nothing is left to do
		})
	}
}

// TestAuthorityBecomesTheFirstRoot opens stores of a program that knew one root of an org.
func TestAuthorityBecomesTheFirstRoot(t *testing.T) {
	for name, c := range map[string]struct {
		driver, dsn, bytes string
		dialect            goose.Dialect
	}{
		"sqlite":   {"sqlite", filepath.Join(t.TempDir(), "store.db"), "BLOB", goose.DialectSQLite3},
		"postgres": {"pgx", schema(t), "BYTEA", goose.DialectPostgres},
	} {
		t.Run(name, func(t *testing.T) {
			left(t, c.driver, c.dsn, c.dialect, os.DirFS(filepath.Join("migrations", name)), 9,
				`INSERT INTO orgs (id, slug, name, plan, created_at) VALUES ('org_old', 'old', 'old', 'free', 1)`,
				`INSERT INTO authorities (org_id, certificate, sealed_key, created_at) VALUES ('org_old', CAST('c' AS `+c.bytes+`), CAST('k' AS `+c.bytes+`), 7)`)
			st := opened(t, c.dsn, store.Options{})
			all, err := st.Roots(t.Context(), "org_old")
			if err != nil || len(all) != 1 || all[0].Version != 1 || all[0].State != store.RootSigning || string(all[0].Certificate) != "c" || string(all[0].SealedKey) != "k" ||
				all[0].CreatedAt.UnixMicro() != 7 || !all[0].ChangesAt.IsZero() {
				t.Errorf("%+v, %v", all, err)
			}
		})
	}
}

// old makes a store of version 1.
func old(t *testing.T, driver, dsn string, dialect goose.Dialect, files fs.FS) {
	t.Helper()
	left(t, driver, dsn, dialect, files, 1,
		`INSERT INTO orgs (id, slug, name, plan, created_at) VALUES ('org_old', 'old', 'old', 'free', 1)`,
		`INSERT INTO sandboxes (id, org_id, status, spec, version, created_by, created_at, updated_at, expires_at)
			VALUES ('sbx_list', 'org_old', 'running', '{"cpus":"1","egress":{"rules":[]}}', 1, 'x', 1, 1, 1), ('sbx_none', 'org_old', 'running', '{"cpus":"1"}', 1, 'x', 1, 1, 1)`,
		`INSERT INTO policies (org_id, name, id, version, updated_at) VALUES ('org_old', 'web', 'pol_1', 3, 1)`,
		`INSERT INTO policy_versions (org_id, name, version, document, created_by, created_at) VALUES ('org_old', 'web', 3, '{"rules":[]}', 'x', 1)`,
		`INSERT INTO decisions (id, org_id, seq, time, sandbox_id, verdict, host, closed, body) VALUES
			('dec_1', 'org_old', 1, 1, 'sbx_list', 'deny', 'a.test', 0, '{"rule_layer":"policy:web","policy_version":3}'),
			('dec_2', 'org_old', 2, 2, 'sbx_list', 'deny', 'a.test', 0, '{"rule_layer":"floor","policy_version":0}')`)
}

// left makes a store of a version, with rows in it.
func left(t *testing.T, driver, dsn string, dialect goose.Dialect, files fs.FS, version int64, rows ...string) {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p, err := goose.NewProvider(dialect, db, files, goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if _, err := db.ExecContext(t.Context(), row); err != nil {
			t.Fatal(err)
		}
	}
}
