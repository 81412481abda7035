package store_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/internal/store/storetest"
	"portreeve.dev/policies/inbound"
)

var postgres string // DSN of a server on which schemas may be made

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run starts a private PostgreSQL unless a DSN was given, so that both engines are always tested.
func run(m *testing.M) int {
	postgres = os.Getenv("PORTREEVE_TEST_POSTGRES")
	if postgres == "" {
		cmd := exec.Command("./postgres.sh", "start")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		dir, dsn, ok := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if err != nil || !ok {
			fmt.Fprintln(os.Stderr, "starting PostgreSQL:", err)
			return 1
		}
		defer exec.Command("./postgres.sh", "stop", dir).Run()
		postgres = dsn
	}
	return m.Run()
}

func openSQLite(t *testing.T, opt store.Options) *store.Store {
	t.Helper()
	return opened(t, filepath.Join(t.TempDir(), "store.db"), opt)
}

var schemas atomic.Int64

// openPostgres makes a schema of its own, which is as good as a fresh database and quicker.
func openPostgres(t *testing.T, opt store.Options) *store.Store {
	t.Helper()
	return opened(t, schema(t), opt)
}

// schema is the DSN of a new, empty schema.
func schema(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%d_%d", os.Getpid(), schemas.Add(1))
	db, err := sql.Open("pgx", postgres)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `CREATE SCHEMA `+name); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(postgres)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", name)
	u.RawQuery = q.Encode()
	return u.String()
}

func opened(t *testing.T, dsn string, opt store.Options) *store.Store {
	t.Helper()
	st, err := store.Open(t.Context(), dsn, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

func TestSQLite(t *testing.T)   { storetest.Run(t, openSQLite) }
func TestPostgres(t *testing.T) { storetest.Run(t, openPostgres) }

// Each invariant by its own name, on both engines.

func TestChangeNeedsAPrincipal(t *testing.T)      { both(t, "ChangeNeedsAPrincipal") }
func TestChangeNeedsAnAuditEntry(t *testing.T)    { both(t, "ChangeNeedsAnAuditEntry") }
func TestEntryAndChangeGoTogether(t *testing.T)   { both(t, "EntryAndChangeGoTogether") }
func TestOrgsDontMeet(t *testing.T)               { both(t, "OrgsDontMeet") }
func TestStaleVersionChangesNothing(t *testing.T) { both(t, "StaleVersionChangesNothing") }
func TestRevisionsAreCommitOrdered(t *testing.T)  { both(t, "RevisionsAreCommitOrdered") }
func TestDecisionAppendIsIdempotent(t *testing.T) { both(t, "DecisionAppendIsIdempotent") }
func TestSetupTokenWorksOnce(t *testing.T)        { both(t, "SetupTokenWorksOnce") }
func TestFirstKeyStays(t *testing.T)              { both(t, "FirstKeyStays") }
func TestTunnelLimitHoldsInParallel(t *testing.T) { both(t, "TunnelLimitHoldsInParallel") }

func TestOwnListsAreKept(t *testing.T)         { both(t, "OwnListsAreKept") }
func TestOldVersionsAreForgotten(t *testing.T) { both(t, "OldVersionsAreForgotten") }
func TestWebhooksAreKept(t *testing.T)         { both(t, "WebhooksAreKept") }

func TestRequestsAreKept(t *testing.T)             { both(t, "RequestsAreKept") }
func TestRequestLimitsHoldInParallel(t *testing.T) { both(t, "RequestLimitsHoldInParallel") }

func TestLossIsWhatIsMissing(t *testing.T)    { both(t, "LossIsWhatIsMissing") }
func TestTailSeesEachEndOnce(t *testing.T)    { both(t, "TailSeesEachEndOnce") }
func TestOldestDecisionsGoFirst(t *testing.T) { both(t, "OldestDecisionsGoFirst") }
func TestDeadFlowsAreEnded(t *testing.T)      { both(t, "DeadFlowsAreEnded") }

func TestRestrictionsHoldForWhatReturns(t *testing.T) { both(t, "RestrictionsHoldForWhatReturns") }

func TestFloorExemptionsAreKept(t *testing.T)    { both(t, "FloorExemptionsAreKept") }
func TestFloorLimitHoldsInParallel(t *testing.T) { both(t, "FloorLimitHoldsInParallel") }
func TestRootsChangeInOrder(t *testing.T)        { both(t, "RootsChangeInOrder") }
func TestIntermediatesAreKept(t *testing.T)      { both(t, "IntermediatesAreKept") }

func TestSecretVersionsFollowEachOther(t *testing.T) { both(t, "SecretVersionsFollowEachOther") }

func both(t *testing.T, name string) {
	t.Run("sqlite", func(t *testing.T) { storetest.Run(t, openSQLite, name) })
	t.Run("postgres", func(t *testing.T) { storetest.Run(t, openPostgres, name) })
}

func TestOpenDoesNotCreate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	if st, err := store.Open(t.Context(), path, store.Options{}); !errors.Is(err, store.ErrNoStore) {
		t.Errorf("opening what isn't there: %v, %v", st, err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the file was made: %v", err)
	}
	st, err := store.Open(t.Context(), path, store.Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	st.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	opened(t, path, store.Options{})

	// The same on PostgreSQL: an empty schema stays empty.
	if st, err := store.Open(t.Context(), postgres, store.Options{}); !errors.Is(err, store.ErrNoStore) {
		t.Errorf("opening an empty database: %v, %v", st, err)
	}
}

func TestStoreSurvivesReopening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	w := storetest.NewWorld(t, func(t *testing.T, opt store.Options) *store.Store {
		st, err := store.Open(t.Context(), path, opt)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}, store.Options{})
	by := w.Org("one")
	if _, _, err := w.Policy(by, "web", `{"rules":[]}`, 0); err != nil {
		t.Fatal(err)
	}
	w.Close()
	st := opened(t, path, store.Options{})
	if p, err := st.Policy(t.Context(), by.Principal.Org, "web"); err != nil || p.Version != 1 {
		t.Errorf("after reopening: %+v, %v", p, err)
	}
	if err := st.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestBadAddressHidesThePassword(t *testing.T) {
	_, err := store.Open(t.Context(), "postgres://user:canary-1234@%zz/db", store.Options{Create: true})
	if err == nil || strings.Contains(err.Error(), "canary-1234") {
		t.Errorf("err = %v", err)
	}
	_, err = store.Open(t.Context(), "postgres://user:canary-1234@127.0.0.1:1/db?connect_timeout=2", store.Options{Create: true})
	if !errors.Is(err, store.ErrUnavailable) || strings.Contains(err.Error(), "canary-1234") {
		t.Errorf("err = %v", err)
	}
}

// A policy for tunnels that can't be read allows nothing, of its org alone, and can be replaced.
func TestUnreadableIngressPolicyRefusesAndIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	w := storetest.NewWorld(t, func(t *testing.T, opt store.Options) *store.Store { return opened(t, path, opt) }, store.Options{})
	one, two := w.Org("one"), w.Org("two")
	put := func(by store.By) error {
		_, err := w.Change(t.Context(), by, func(tx *store.Tx) error {
			if _, err := tx.PutIngressPolicy(t.Context(), inbound.Default(), store.AnyVersion); err != nil {
				return err
			}
			return tx.Record(t.Context(), audit.IngressUpdate, "settings:ingress", nil)
		})
		return err
	}
	if err := errors.Join(put(one), put(two)); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`UPDATE ingress_policies SET policy = '{' WHERE org_id = ?`, one.Principal.Org); err != nil {
		t.Fatal(err)
	}
	p, err := w.IngressPolicy(t.Context(), one.Principal.Org)
	if v := p.Evaluate(inbound.Request{Port: 3000}); err == nil || v.Allowed() {
		t.Errorf("unreadable: %+v, %v", v, err)
	}
	if p, err := w.IngressPolicy(t.Context(), two.Principal.Org); err != nil || p.Version != 1 {
		t.Errorf("another org's: %+v, %v", p, err)
	}
	if err := put(one); err != nil {
		t.Errorf("replacing it: %v", err)
	}
	if p, err := w.IngressPolicy(t.Context(), one.Principal.Org); err != nil || p.Version != 2 {
		t.Errorf("after that: %+v, %v", p, err)
	}
}
