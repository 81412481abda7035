package supervisor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"portreeve.dev/gateway/config"
)

func TestDoorListenerIsTheEdges(t *testing.T) {
	uid := func(f *os.File) uint32 {
		t.Helper()
		var stat unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
			t.Fatal(err)
		}
		return stat.Uid
	}
	files, err := doorListeners(config.Doors{HTTP: "127.0.0.1:0", SOCKS: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(files)
	if len(files) != 2 {
		t.Fatalf("%d listeners", len(files))
	}
	for _, f := range files {
		if got := uid(f); got != EdgeUID {
			t.Errorf("it is of uid %d", got)
		}
	}
	own, err := listenFile("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if got := uid(own); got != 0 {
		t.Errorf("after it, another listener is of uid %d", got)
	}
	if none, err := doorListeners(config.Doors{}); err != nil || len(none) != 0 {
		t.Errorf("without doors: %v, %v", none, err)
	}
}

func TestDoorCertificateIsRead(t *testing.T) {
	dir := t.TempDir()
	chain, key := filepath.Join(dir, "chain"), filepath.Join(dir, "key")
	d := config.Doors{HTTP: "127.0.0.1:8444", Name: "localhost", Certificate: chain, Key: key}
	if _, err := edgeDoors(d); err == nil || !strings.Contains(err.Error(), "egress.doors.certificate") {
		t.Errorf("without its files: %v", err)
	}
	os.WriteFile(chain, []byte("chain"), 0o600)
	if _, err := edgeDoors(d); err == nil || !strings.Contains(err.Error(), "egress.doors.key") {
		t.Errorf("without its key: %v", err)
	}
	os.WriteFile(key, []byte("key"), 0o600)
	if got, err := edgeDoors(d); err != nil || got.Certificate != "chain" || got.Key != "key" || !got.HTTP || got.SOCKS {
		t.Errorf("%+v, %v", got, err)
	}
}
