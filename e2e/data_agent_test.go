package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"portreeve.dev/lab"
)

var queryProgram = sync.OnceValues(func() ([]byte, error) { return built("./query") })

// built compiles a helper without cgo and returns it.
func built(pkg string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "helper")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "helper")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", file, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, &os.PathError{Op: "building", Path: pkg + ": " + string(out), Err: err}
	}
	return os.ReadFile(file)
}

// query runs a statement in the sandbox and returns what it printed.
func (b *box) query(dsn, statement string) (string, bool) {
	b.t.Helper()
	r := b.exec("/workspace/query", dsn, statement)
	return strings.TrimSpace(r.Stdout), r.Code == 0
}

// TestDataAgent is a journey: an agent works on one database, and can't reach the one beside it, by name or by address, with TLS or
// without, until somebody allows it.
func TestDataAgent(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	pg := l.StartPostgres(t, "db.test", "other.test")
	ceiling(t, p, allow("db", "db.test", "protocols", []string{"postgres"}))
	program, err := queryProgram()
	if err != nil {
		t.Fatal(err)
	}
	b := sandbox(t, p, "memory", "512Mi")
	b.write("/workspace/query", program)
	b.exec("chmod", "755", "/workspace/query")
	const to = "postgres://agent:lab@db.test/data?connect_timeout=10&sslmode="

	if said, ok := b.query(to+"disable", "create table notes (id int, text text)"); !ok {
		t.Fatalf("making a table: %s", said)
	}
	if said, ok := b.query(to+"require", "insert into notes values (1, 'by-name') returning id, text"); !ok || said != "1|by-name" {
		t.Errorf("over TLS: %s", said)
	}
	// The gateway passes TLS by what the client asked for; the certificate is the server's own, in the name that was dialled.
	authority, err := os.ReadFile(l.CA.File)
	if err != nil {
		t.Fatal(err)
	}
	b.write("/workspace/ca.pem", authority)
	if said, ok := b.query(to+"verify-full&sslrootcert=/workspace/ca.pem", "select ssl from pg_stat_ssl where pid = pg_backend_pid()"); !ok || said != "true" {
		t.Errorf("over TLS that is verified: %s", said)
	}
	if r := pg.AskData("select text from notes"); strings.TrimSpace(r.Stdout) != "by-name" {
		t.Errorf("the server has %v", r)
	}
	d := b.decided("allows db.test", func(d decision) bool { return d.Host == "db.test" && d.Layer == "connect" && d.Closed })
	if d.Verdict != "allow" || d.Rule != "db" || d.Port != 5432 || d.Addr != l.TCP.Addr.String() || d.In == 0 || d.Out == 0 {
		t.Errorf("it is recorded as %+v", d)
	}

	toPostgres := func(p lab.Packet) bool { return p.DstPort == 5432 }
	before := openings(t, l, toPostgres)
	for name, dsn := range map[string]string{
		"another name of the same server": "postgres://agent:lab@other.test/data?connect_timeout=5&sslmode=require",
		"its address":                     "postgres://agent:lab@" + l.TCP.Addr.String() + "/data?connect_timeout=5&sslmode=disable",
		"a database elsewhere":            "postgres://agent:lab@evil.test/data?connect_timeout=5&sslmode=prefer",
		"another port":                    "postgres://agent:lab@db.test:8080/data?connect_timeout=5&sslmode=disable",
	} {
		if said, ok := b.query(dsn, "select 1"); ok {
			t.Errorf("%s was reached: %s", name, said)
		}
	}
	if n := openings(t, l, toPostgres); len(n) != len(before) {
		t.Errorf("%d connections were opened for what is denied", len(n)-len(before))
	}
	if d := b.decided("denies other.test", func(d decision) bool { return d.Host == "other.test" }); d.Verdict != "deny" || d.Reason != "no_rule" {
		t.Errorf("the other name is recorded as %+v", d)
	}
	b.decided("denies the address", func(d decision) bool {
		return d.Addr == l.TCP.Addr.String() && d.Host == "" && d.Verdict == "deny" && d.Reason == "no_rule"
	})
	quiet(t, l, "while it looked around")

	ceiling(t, p, allow("db", "db.test", "protocols", []string{"postgres"}), allow("other", "other.test", "protocols", []string{"postgres"}))
	if said, ok := b.query(strings.Replace(to, "db.test", "other.test", 1)+"require", "select count(*) from notes"); !ok || said != "1" {
		t.Errorf("the other name, once it is allowed: %s", said)
	}
}
