package supervisor

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portreeve.dev/gateway/config"
)

// settings are those of an empty configuration file.
func settings(t *testing.T) *config.Config {
	t.Helper()
	c, err := config.Load("")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// stateDir is one that the processes' uids can enter, as they can't a test's own folder.
func stateDir(t *testing.T) string {
	t.Helper()
	top, err := os.MkdirTemp("/var/tmp", "portreeve-supervisor-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(top, "state")
}

// distribution has a file in place of each program, but for those that are left out.
func distribution(t *testing.T, without ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range append(programs, TinyImage) {
		if strings.Contains(strings.Join(without, " "), name) {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestStateDirectoryHasOneOwner(t *testing.T) {
	c := Config{StateDir: stateDir(t), HTTP: "127.0.0.1:0", HTTPS: "127.0.0.1:0", Settings: settings(t), BinDir: distribution(t), Log: slog.New(slog.DiscardHandler)}
	first, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := New(c); err == nil || !strings.Contains(err.Error(), "is in use by another portreeve") {
		t.Errorf("a second one: %v, %v", second != nil, err)
	}
	other := c
	other.StateDir = stateDir(t)
	neighbour, err := New(other)
	if err != nil {
		t.Fatalf("one with a directory of its own: %v", err)
	}
	neighbour.lock.Close()
	first.lock.Close()
	again, err := New(c)
	if err != nil {
		t.Fatalf("when the first is gone: %v", err)
	}
	again.lock.Close()
	if first.instance == neighbour.instance {
		t.Error("two state directories are one instance")
	}
}

func TestStateHasOneOwnerForEachPart(t *testing.T) {
	c := Config{StateDir: stateDir(t), Settings: settings(t), BinDir: distribution(t), Log: slog.New(slog.DiscardHandler)}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.lock.Close()
	for part, want := range map[string]os.FileMode{"": 0o755, "bin": 0o755, "node": 0o700, "log": 0o700, "edge": 0o700, "control": 0o700} {
		info, err := os.Stat(filepath.Join(c.StateDir, part))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q has mode %v, want %v: %v", part, info.Mode().Perm(), want, err)
		}
	}
	if info, err := os.Stat(filepath.Join(c.StateDir, "bin", "portreeve-init")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the programs: %v", err)
	}
}

func TestMissingProgramIsNamed(t *testing.T) {
	c := Config{StateDir: stateDir(t), Settings: settings(t), BinDir: distribution(t, "runsc"), Log: slog.New(slog.DiscardHandler)}
	s, err := New(c)
	if err == nil {
		s.lock.Close()
		t.Fatal("started without runsc")
	}
	if !strings.Contains(err.Error(), "runsc is missing: run make build") {
		t.Errorf("it says %v", err)
	}
	c.BinDir = distribution(t)
	if s, err = New(c); err != nil {
		t.Fatalf("with all of them, in the same directory: %v", err)
	}
	s.lock.Close()
}

func TestNewerProgramIsInstalled(t *testing.T) {
	from, state := distribution(t), stateDir(t)
	if err := prepareState(state); err != nil {
		t.Fatal(err)
	}
	installed := func() string {
		t.Helper()
		if err := installPrograms(from, state); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(state, "bin", "portreeve-edge"))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	if got := installed(); got != "portreeve-edge" {
		t.Errorf("installed %q", got)
	}
	if err := os.WriteFile(filepath.Join(from, "portreeve-edge"), []byte("portreeve-EDGE"), 0o644); err != nil { // of the same size
		t.Fatal(err)
	}
	if got := installed(); got != "portreeve-EDGE" {
		t.Errorf("the newer one is not there, %q is", got)
	}
	// A package may give all its files one old time.
	newest := filepath.Join(from, "portreeve-edge")
	if err := os.WriteFile(newest, []byte("PORTREEVE-edge"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(newest, time.Unix(0, 0), time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if got := installed(); got != "PORTREEVE-edge" {
		t.Errorf("the one with an old time is not there, %q is", got)
	}
}

func TestTakenPortIsNamedWithItsFlag(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	s := &Supervisor{config: Config{HTTP: l.Addr().String(), HTTPS: "127.0.0.1:0", Settings: &config.Config{}}}
	if err := s.checkAddresses(); err == nil || !strings.Contains(err.Error(), "choose another with --http") {
		t.Errorf("it says %v", err)
	}
	s.config.HTTP, s.config.HTTPS = "127.0.0.1:0", l.Addr().String()
	if err := s.checkAddresses(); err == nil || !strings.HasSuffix(err.Error(), "choose another with --https") {
		t.Errorf("it says %v", err)
	}
	s.config.HTTPS = "127.0.0.1:0"
	if err := s.checkAddresses(); err != nil {
		t.Errorf("with both free: %v", err)
	}
}
