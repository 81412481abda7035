package cage

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"

	"golang.org/x/sys/unix"
	_ "modernc.org/sqlite"
)

// edgeWork does in the cage what the edge does: files 3 = TCP listener, 4 = unix socket to the parent, 5 = UDP socket.
func edgeWork(c Config) error {
	l, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	u, err := net.FilePacketConn(os.NewFile(5, "udp"))
	if err != nil {
		return err
	}
	r, err := Enter(c)
	if err != nil {
		return err
	}
	if err := r.SelfCheck(); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"serve and dial TLS", func() error { return serveTLS(l) }},
		{"answer UDP", func() error { return answerUDP(u) }},
		{"database", func() error { return database(c.ReadWrite[0]) }},
		{"pass descriptors", passFiles},
		{"listen", func() error {
			if !r.Bind {
				return nil // an older kernel lets it bind, and the filter kills what listens then
			}
			return refusedListenAnyHow()
		}},
		{"runtime", runtimeWork},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// inwardWork dials TCP and the parent's unix socket, and meets refusals that must not kill.
func inwardWork(c Config) error {
	r, err := Enter(c)
	if err != nil {
		return err
	}
	if err := r.SelfCheck(); err != nil {
		return err
	}
	conn, err := net.Dial("tcp4", os.Getenv("TARGET"))
	if err != nil {
		return err
	}
	b, err := io.ReadAll(conn)
	if err != nil || string(b) != "hello" {
		return fmt.Errorf("read %q, %w", b, err)
	}
	if err := passFiles(); err != nil {
		return err
	}
	if err := runtimeWork(); err != nil {
		return err
	}
	if _, err := net.Dial("tcp6", "[::1]:1"); !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("IPv6: %w", err)
	}
	if _, err := net.Dial("udp4", "127.0.0.1:53"); !errors.Is(err, unix.EACCES) {
		return fmt.Errorf("UDP: %w", err)
	}
	if _, err := net.LookupHost("name.test"); err == nil {
		return errors.New("a name was looked up")
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

func serveTLS(l net.Listener) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"cage.test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	body := bytes.Repeat([]byte("portreeve"), 1<<18)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(body) })}
	go srv.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}))
	defer srv.Close()
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", l.Addr().String())
		},
		TLSClientConfig: &tls.Config{RootCAs: roots},
	}}
	resp, err := client.Get("https://cage.test/")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, body) {
		return fmt.Errorf("read %d bytes, %w", len(got), err)
	}
	return nil
}

func answerUDP(u net.PacketConn) error {
	c, err := net.Dial("udp4", u.LocalAddr().String())
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte("ask")); err != nil {
		return err
	}
	b := make([]byte, 16)
	n, from, err := u.ReadFrom(b)
	if err != nil {
		return err
	}
	if _, err := u.WriteTo(b[:n], from); err != nil {
		return err
	}
	_, err = c.Read(b)
	return err
}

func database(dir string) error {
	for name, options := range map[string]string{
		"spool.db": "?_pragma=journal_mode(WAL)&_pragma=locking_mode(EXCLUSIVE)&_pragma=synchronous(FULL)&_pragma=temp_store(memory)&_pragma=busy_timeout(5000)",
		"other.db": "?_pragma=journal_mode(WAL)&_pragma=temp_store(memory)",
	} {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, name)+options)
		if err != nil {
			return err
		}
		defer db.Close()
		for _, q := range []string{
			"create table d (id integer primary key, body blob, at text)", "create index d_at on d (at)",
			"insert into d (body, at) values (zeroblob(300000), datetime('now'))",
			"with recursive n(i) as (select 1 union all select i+1 from n where i < 5000) insert into d (body, at) select randomblob(200), i from n",
			"pragma wal_checkpoint(truncate)", "delete from d where id % 2", "pragma incremental_vacuum", "vacuum", "pragma integrity_check",
			"create temp table t as select * from d order by body",
		} {
			if _, err := db.Exec(q); err != nil {
				return fmt.Errorf("%s: %s: %w", name, q, err)
			}
		}
		if err := db.Close(); err != nil {
			return err
		}
	}
	return nil
}

// passFiles gets a descriptor from the parent at file 4, reads from it and sends a new one back.
func passFiles() error {
	c, err := net.FileConn(os.NewFile(4, "parent"))
	if err != nil {
		return err
	}
	defer c.Close()
	uc := c.(*net.UnixConn)
	b, oob := make([]byte, 16), make([]byte, 256)
	n, oobn, _, _, err := uc.ReadMsgUnix(b, oob)
	if err != nil {
		return err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) != 1 {
		return fmt.Errorf("%d bytes, %d messages, %w", n, len(msgs), err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fds[0]), "given")
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	if _, err := unix.Write(pair[0], got); err != nil {
		return err
	}
	_, _, err = uc.WriteMsgUnix([]byte("x"), unix.UnixRights(pair[1]), nil)
	return err
}

func refusedListenAnyHow() error {
	for _, network := range []string{"tcp", "tcp4", "tcp6"} {
		if l, err := net.Listen(network, ":0"); err == nil {
			l.Close()
			return fmt.Errorf("listening on %s", network)
		}
	}
	return nil
}

// runtimeWork makes the runtime start threads, collect, preempt, profile, take signals and splice.
func runtimeWork() error {
	if err := threads(); err != nil {
		return err
	}
	var prof bytes.Buffer
	if err := pprof.StartCPUProfile(&prof); err != nil {
		return err
	}
	deadline := time.Now().Add(50 * time.Millisecond)
	for i := range 2 * runtime.GOMAXPROCS(0) {
		go func() { // busy, without a call: only a signal preempts it
			for n := 0; time.Now().Before(deadline); n += i {
			}
		}()
	}
	var keep [][]byte
	for time.Now().Before(deadline) {
		keep = append(keep[:len(keep)%64], make([]byte, 1<<16))
	}
	runtime.GC()
	pprof.StopCPUProfile()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGHUP)
	signal.Stop(signals)
	_ = pprof.Lookup("goroutine").WriteTo(io.Discard, 2)
	timer := time.NewTimer(time.Millisecond)
	<-timer.C
	return splice()
}

// splice lets package net copy between two unix sockets in the kernel.
func splice() error {
	a, b, err := connPair()
	if err != nil {
		return err
	}
	c, d, err := connPair()
	if err != nil {
		return err
	}
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(c, b)
		c.Close()
		copied <- err
	}()
	go func() { a.Write(make([]byte, 1<<20)); a.Close() }()
	got, err := io.ReadAll(d)
	if err == nil && len(got) != 1<<20 {
		err = fmt.Errorf("%d bytes arrived", len(got))
	}
	return errors.Join(err, <-copied)
}

func connPair() (a, b net.Conn, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	fa, fb := os.NewFile(uintptr(pair[0]), "a"), os.NewFile(uintptr(pair[1]), "b")
	defer fa.Close()
	defer fb.Close()
	a, err1 := net.FileConn(fa)
	b, err2 := net.FileConn(fb)
	return a, b, errors.Join(err1, err2)
}
