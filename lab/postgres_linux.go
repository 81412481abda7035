package lab

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Postgres is a real PostgreSQL in the lab, at tcp.test's address. Its user "agent" has the password "lab".
type Postgres struct {
	Dir string

	lab  *Lab
	as   *syscall.Credential
	bin  string
	cmd  *exec.Cmd
	done chan struct{}
}

// StartPostgres starts one that ends with the test. It takes connections over TLS, by a certificate for the names, and without.
func (l *Lab) StartPostgres(t TB, names ...string) *Postgres {
	t.Helper()
	p := &Postgres{lab: l, done: make(chan struct{})}
	if err := p.start(names); err != nil {
		t.Fatalf("starting PostgreSQL: %v", err)
	}
	t.Cleanup(p.stop)
	for _, name := range names {
		l.DNS.Set(name, At(tcpAddr))
	}
	if err := Await(20*time.Second, "a PostgreSQL that answers", func() bool { return p.Ask("select 1").Code == 0 }); err != nil {
		log, _ := os.ReadFile(filepath.Join(p.Dir, "log"))
		t.Fatalf("%v: %s", err, log)
	}
	if r := p.Ask("create role agent login password 'lab'"); r.Code != 0 {
		t.Fatalf("making the user: %v", r)
	}
	if r := p.Ask("create database data owner agent"); r.Code != 0 { // not in one transaction with anything
		t.Fatalf("making the database: %v", r)
	}
	return p
}

func (p *Postgres) start(names []string) error {
	all, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(all) == 0 {
		return fmt.Errorf("no initdb on this machine: %v", err)
	}
	p.bin = filepath.Dir(slices.Max(all))
	u, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	p.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	if p.Dir, err = os.MkdirTemp(p.lab.Dir, "pg"); err != nil {
		return err
	}
	if err := os.Chown(p.Dir, uid, gid); err != nil {
		return err
	}
	data := filepath.Join(p.Dir, "data")
	if r := p.run("initdb", "-D", data, "-A", "trust", "-N", "--locale=C", "-E", "UTF8"); r.Code != 0 {
		return fmt.Errorf("initdb: %v", r)
	}
	if err := p.configure(data, names); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(p.Dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command(filepath.Join(p.bin, "postgres"), "-D", data)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.Dir, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: p.as}
	if err := p.lab.Net.Do(p.cmd.Start); err != nil {
		return err
	}
	go func() {
		p.cmd.Wait()
		close(p.done)
	}()
	return nil
}

// configure writes the certificate, who may come in, and where to listen.
func (p *Postgres) configure(data string, names []string) error {
	cert, err := p.lab.CA.Issue(time.Now().Add(12*time.Hour), names...)
	if err != nil {
		return err
	}
	key, err := x509.MarshalECPrivateKey(cert.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		return err
	}
	settings := fmt.Sprintf("listen_addresses = '%s'\nport = 5432\nunix_socket_directories = '%s'\nssl = on\nlog_connections = on\nfsync = off\n", tcpAddr, p.Dir)
	for name, text := range map[string]string{
		"server.crt":           string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})),
		"server.key":           string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})),
		"postgresql.auto.conf": settings,
		"pg_hba.conf":          "local all all trust\nhost data agent 0.0.0.0/0 scram-sha-256\n",
	} {
		file := filepath.Join(data, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		if err := os.Chown(file, int(p.as.Uid), int(p.as.Gid)); err != nil {
			return err
		}
	}
	return nil
}

// Ask runs a statement as the server's owner, past the network.
func (p *Postgres) Ask(statement string) Run {
	return p.run("psql", "-h", p.Dir, "-U", "postgres", "-d", "postgres", "-At", "-c", statement)
}

// AskData is Ask in the database that agents use.
func (p *Postgres) AskData(statement string) Run {
	return p.run("psql", "-h", p.Dir, "-U", "postgres", "-d", "data", "-At", "-c", statement)
}

func (p *Postgres) run(name string, args ...string) Run {
	program := filepath.Join(p.bin, name)
	cmd := exec.Command(program, args...)
	cmd.Dir = p.Dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.as}
	return run(cmd)
}

// stop asks it to end at once, and waits.
func (p *Postgres) stop() {
	p.cmd.Process.Signal(syscall.SIGQUIT)
	<-p.done
}
