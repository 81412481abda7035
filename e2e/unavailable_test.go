package e2e

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "modernc.org/sqlite"
)

// TestDamagedSecretClosesOnlyItself: a secret whose sealed bytes can't be opened closes what it is granted for, and says so; the
// org's other secret goes on, and so does another org's policy.
func TestDamagedSecretClosesOnlyItself(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	ceiling(t, p, inspect("api", "api.test"), inspect("good", "good.test"))
	b := armed(t, p)
	bad, fine := keep(t, p, "--host", "api.test"), keep(t, p, "--host", "good.test")
	status := func(to string) string { return statuses(b.openedTo(to+":443", false, get("/v1/x"))) }
	if got := status("api.test"); got != "200" {
		t.Fatalf("before: %s", got)
	}
	store, err := sql.Open("sqlite", "file:"+filepath.Join(p.Info.State, "control", "store.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if _, err := store.ExecContext(t.Context(), `UPDATE secrets SET sealed = X'00' WHERE name = $1`, bad.name); err != nil {
		t.Fatal(err)
	}
	// Any change has it read again, and reaches every edge.
	call(t, p, "PUT", "/policies/any?wait=applied", map[string]any{"rules": []any{}}, 200, nil)
	before := len(l.Web.Requests("api.test"))
	if got := status("api.test"); got == "200" {
		t.Errorf("where it is granted: %s", got)
	}
	b.decided("refuses without the secret", func(d decision) bool { return d.Host == "api.test" && d.Reason == "secret_unavailable" })
	if n := len(l.Web.Requests("api.test")) - before; n != 0 {
		t.Errorf("%d requests went out without it", n)
	}
	if r := sent(t, l, func() { status("good.test") }); bearer(r) != "Bearer "+fine.value {
		t.Errorf("the other secret: %q", bearer(r))
	}
	var list struct {
		Secrets []struct{ Name, State string }
	}
	call(t, p, "GET", "/secrets", nil, 200, &list)
	for _, s := range list.Secrets {
		if want := map[string]string{bad.name: "unavailable", fine.name: "ready"}[s.Name]; s.State != want {
			t.Errorf("%s is %s, want %s", s.Name, s.State, want)
		}
	}
	log, err := os.ReadFile(filepath.Join(p.Info.State, "log", "control.log"))
	if text := string(log); err != nil || strings.Count(text, "can't be opened") != 1 || !strings.Contains(text, bad.ID) {
		t.Errorf("the log names it not, or more than once: %s, %v", text, err)
	}
	// A new value mends it.
	bad.set()
	if r := sent(t, l, func() { status("api.test") }); bearer(r) != "Bearer "+bad.value {
		t.Errorf("with a new value: %q", bearer(r))
	}
}
