package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

func open(t *testing.T) *Store {
	t.Helper()
	return openAt(t, Config{Dir: t.TempDir()})
}

func openAt(t *testing.T, c Config) *Store {
	t.Helper()
	s, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// stream makes a tar; an entry's content is its Linkname unless it is a link.
func stream(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range entries {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
		}
		h.Size = int64(len(content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func file(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: content, Mode: 0o644}
}
func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }
func symlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
}
func hardlink(name, to string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to}
}

func TestUnpackStaysInside(t *testing.T) {
	for _, tc := range []struct {
		name    string
		entries []tar.Header
		refused bool
	}{
		{"dots in a name are taken from the root", []tar.Header{file("../../victim", "x")}, false},
		{"an absolute name is taken from the root", []tar.Header{file("/victim", "x")}, false},
		{"through a relative link that stays inside", []tar.Header{dir("real"), symlink("alias", "real"), file("alias/victim", "x")}, false},
		{"through an absolute link", []tar.Header{symlink("out", "OUTSIDE"), file("out/victim", "x")}, true},
		{"through a relative link that leaves", []tar.Header{symlink("out", "../../../outside"), file("out/victim", "x")}, true},
		{"through two links", []tar.Header{symlink("a", ".."), symlink("b", "a/.."), file("b/victim", "x")}, true},
		{"a file in place of a link", []tar.Header{symlink("victim", "OUTSIDE/victim"), file("victim", "x")}, false},
		{"a hard link to a file outside", []tar.Header{hardlink("mine", "../../../outside/victim")}, true},
		{"a hard link through a link", []tar.Header{symlink("out", "OUTSIDE"), hardlink("mine", "out/victim")}, true},
		{"a hard link inside", []tar.Header{file("a", "x"), hardlink("b", "a")}, false},
		{"a directory in place of a link", []tar.Header{symlink("out", "OUTSIDE"), dir("out"), file("out/victim", "x")}, false},
		{"a link that leads out, never followed", []tar.Header{symlink("etc/mtab", "/proc/mounts")}, false},
		{"owner by a link", []tar.Header{symlink("victim", "OUTSIDE/victim"), {Typeflag: tar.TypeSymlink, Name: "victim", Linkname: "OUTSIDE/victim", Uid: 1001, Gid: 1001}}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			base := t.TempDir()
			outside := filepath.Join(base, "outside")
			if err := os.Mkdir(outside, 0o755); err != nil {
				t.Fatal(err)
			}
			victim := filepath.Join(outside, "victim")
			if err := os.WriteFile(victim, []byte("untouched"), 0o600); err != nil {
				t.Fatal(err)
			}
			s := openAt(t, Config{Dir: filepath.Join(base, "images")})
			for i := range tc.entries {
				if tc.entries[i].Typeflag != tar.TypeReg {
					tc.entries[i].Linkname = strings.Replace(tc.entries[i].Linkname, "OUTSIDE", outside, 1)
				}
			}
			_, err := s.Import(t.Context(), "x", stream(t, tc.entries...))
			if (err != nil) != tc.refused {
				t.Errorf("got %v, want refused: %v", err, tc.refused)
			}
			st, err := os.Stat(victim)
			if err != nil {
				t.Fatal(err)
			}
			sys := st.Sys().(*syscall.Stat_t)
			if b, _ := os.ReadFile(victim); string(b) != "untouched" || st.Mode().Perm() != 0o600 || sys.Uid != 0 || sys.Nlink != 1 {
				t.Errorf("the file outside is now %q %v uid %d, %d links", b, st.Mode(), sys.Uid, sys.Nlink)
			}
			entries, _ := os.ReadDir(base)
			more, _ := os.ReadDir(outside)
			if len(entries) != 2 || len(more) != 1 {
				t.Errorf("outside the store: %v, %v", entries, more)
			}
		})
	}
}

func TestUnpackDropsDevicesAndIDBits(t *testing.T) {
	s := open(t)
	img, err := s.Import(t.Context(), "x", stream(t,
		tar.Header{Typeflag: tar.TypeChar, Name: "dev/mem", Mode: 0o666, Devmajor: 1, Devminor: 1},
		tar.Header{Typeflag: tar.TypeBlock, Name: "disk", Mode: 0o666, Devmajor: 8},
		tar.Header{Typeflag: tar.TypeFifo, Name: "pipe", Mode: 0o666},
		tar.Header{Typeflag: tar.TypeReg, Name: "su", Mode: 0o6755, Linkname: "#!", Uid: 0},
		tar.Header{Typeflag: tar.TypeReg, Name: "plain", Mode: 0o755, Linkname: "#!", Uid: 1001, Gid: 7},
		tar.Header{Typeflag: tar.TypeDir, Name: "shared/", Mode: 0o3777}))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dev/mem", "disk", "pipe"} {
		if _, err := os.Lstat(filepath.Join(img.Rootfs, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, want := range map[string]fs.FileMode{"su": 0o755, "plain": 0o755, "shared": fs.ModeDir | fs.ModeSticky | 0o777} {
		if st, err := os.Lstat(filepath.Join(img.Rootfs, name)); err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, st.Mode(), err, want)
		}
	}
	st, err := os.Lstat(filepath.Join(img.Rootfs, "plain"))
	if err != nil {
		t.Fatal(err)
	}
	if sys := st.Sys().(*syscall.Stat_t); sys.Uid != 1001 || sys.Gid != 7 {
		t.Errorf("owner %d:%d", sys.Uid, sys.Gid)
	}
}

func TestMountPointsAreReal(t *testing.T) {
	s := open(t)
	for _, name := range []string{"workspace", "tmp", "proc", "sys", "dev", "run", "etc", ".portreeve", "run/portreeve"} {
		if _, err := s.Import(t.Context(), "x", stream(t, symlink(name, "/usr"))); !errors.Is(err, ErrMountPoint) {
			t.Errorf("/%s as a link: %v", name, err)
		}
		if _, err := s.Import(t.Context(), "x", stream(t, file(name, ""))); err == nil {
			t.Errorf("/%s as a file was taken", name)
		}
	}
	if _, err := s.Import(t.Context(), "x", stream(t, dir("etc/hosts"))); !errors.Is(err, ErrMountPoint) {
		t.Errorf("/etc/hosts as a directory: %v", err)
	}
	img, err := s.Import(t.Context(), "x", stream(t, dir("workspace"), symlink("etc/resolv.conf", "/run/systemd/resolve/stub-resolv.conf"),
		file("etc/passwd", "root:x:0:0::/root:/bin/bash"), hardlink("etc/copy", "etc/passwd")))
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Lstat(filepath.Join(img.Rootfs, "etc/resolv.conf")); err != nil || !st.Mode().IsRegular() {
		t.Errorf("resolv.conf: %v, %v", st.Mode(), err)
	}
	if st, err := os.Lstat(filepath.Join(img.Rootfs, "workspace")); err != nil || st.Sys().(*syscall.Stat_t).Uid != 1001 {
		t.Errorf("workspace: %v, %v", st, err)
	}
	b, _ := os.ReadFile(filepath.Join(img.Rootfs, "etc/passwd"))
	if string(b) != "root:x:0:0::/root:/bin/bash\nsandbox:x:1001:1001::/workspace:/bin/sh\n" {
		t.Errorf("passwd %q", b)
	}
	if b, _ := os.ReadFile(filepath.Join(img.Rootfs, "etc/copy")); strings.Contains(string(b), "sandbox") {
		t.Errorf("the other link of passwd was written too: %q", b)
	}
}

func TestBrokenImportLeavesNothing(t *testing.T) {
	whole := stream(t, dir("bin"), file("bin/sh", strings.Repeat("x", 4096))).Bytes()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, do := range map[string]func(s *Store) error{
		"cut off": func(s *Store) error { _, err := s.Import(t.Context(), "x", bytes.NewReader(whole[:2000])); return err },
		"reader fails": func(s *Store) error {
			_, err := s.Import(t.Context(), "x", iotest.ErrReader(io.ErrClosedPipe))
			return err
		},
		"cancelled": func(s *Store) error { _, err := s.Import(ctx, "x", bytes.NewReader(whole)); return err },
		"not a tar": func(s *Store) error {
			_, err := s.Import(t.Context(), "x", strings.NewReader(strings.Repeat("x", 2048)))
			return err
		},
		"too large": func(s *Store) error {
			s.c.MaxBytes = 4095
			_, err := s.Import(t.Context(), "x", bytes.NewReader(whole))
			return err
		},
		"too many": func(s *Store) error {
			s.c.MaxEntries = 1
			_, err := s.Import(t.Context(), "x", bytes.NewReader(whole))
			return err
		},
		"not a name":    func(s *Store) error { _, err := s.Import(t.Context(), "../x", bytes.NewReader(whole)); return err },
		"no mountpoint": func(s *Store) error { _, err := s.Import(t.Context(), "x", stream(t, symlink("tmp", "/"))); return err },
	} {
		s := open(t)
		if err := do(s); err == nil {
			t.Errorf("%s: imported", name)
		}
		if _, err := s.Resolve("x"); !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if entries, _ := os.ReadDir(s.c.Dir); len(entries) != 1 {
			t.Errorf("%s: left %v", name, entries)
		}
	}
	s := open(t)
	s.c.MaxBytes, s.c.MaxEntries = 4096, 2
	img, err := s.Import(t.Context(), "x", bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(whole)
	if img.Digest != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("digest %s", img.Digest)
	}
	if again, err := s.Import(t.Context(), "y", bytes.NewReader(whole)); err != nil || again.Rootfs != img.Rootfs {
		t.Errorf("the same bytes under another name: %+v, %v", again, err)
	}
}

func TestStates(t *testing.T) {
	s := open(t)
	if _, err := s.Resolve("none"); !errors.Is(err, ErrUnknown) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := s.Resolve("../../etc/passwd"); !errors.Is(err, ErrUnknown) {
		t.Errorf("not a name: %v", err)
	}
	if err := s.building("slow", "halfway"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve("slow"); !errors.Is(err, ErrBuilding) || !strings.Contains(err.Error(), "halfway") {
		t.Errorf("building: %v", err)
	}
	if st, err := Look(s.c.Dir, "slow"); err != nil || st.State != "building" {
		t.Errorf("looked at from outside: %+v, %v", st, err)
	}
	if _, err := Look(s.c.Dir, "none"); !errors.Is(err, ErrUnknown) {
		t.Errorf("looked for from outside: %v", err)
	}
	if err := os.Mkdir(filepath.Join(s.c.Dir, partial+"1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Import(t.Context(), "good", stream(t, file("a", "b"))); err != nil {
		t.Fatal(err)
	}
	// A new process: what was being built is no more; what was ready is.
	s.Close()
	next := openAt(t, s.c)
	if _, err := next.Resolve("slow"); !errors.Is(err, ErrFailed) {
		t.Errorf("after a restart: %v", err)
	}
	if img, err := next.Resolve("good"); err != nil || img.Name != "good" {
		t.Errorf("after a restart: %+v, %v", img, err)
	}
	img, err := next.Resolve("good")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(img.Rootfs, "workspace")); err != nil {
		t.Fatal(err)
	}
	next.Close()
	next = openAt(t, s.c)
	if _, err := os.Stat(filepath.Join(img.Rootfs, "workspace")); err != nil {
		t.Errorf("an image of an older version: %v", err)
	}
	all, err := next.List()
	if err != nil || len(all) != 2 || all[0].State != "ready" || all[1].State != "failed" {
		t.Errorf("list %+v, %v", all, err)
	}
	if old, _ := filepath.Glob(filepath.Join(s.c.Dir, partial+"*")); len(old) != 0 {
		t.Errorf("left over: %q", old)
	}
}

func TestTiny(t *testing.T) {
	var one, two bytes.Buffer
	for _, b := range []*bytes.Buffer{&one, &two} {
		if err := WriteTiny(t.Context(), b, "/bin/busybox"); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two runs differ")
	}
	s := open(t)
	img, err := s.BuildTiny(t.Context(), "/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(img.Rootfs, "bin/sh")); err != nil || to != "busybox" {
		t.Errorf("sh: %q, %v", to, err)
	}
	if b, _ := os.ReadFile(filepath.Join(img.Rootfs, "etc/passwd")); !strings.Contains(string(b), "sandbox:x:1001:1001:") {
		t.Errorf("passwd %q", b)
	}
	if err := WriteTiny(t.Context(), io.Discard, "/bin/ls"); err == nil || !strings.Contains(err.Error(), "shared libraries") {
		t.Errorf("a program with libraries: %v", err)
	}
}

func TestBaseArguments(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if suite, sources := debian(root); suite != "bookworm" || sources != nil {
		t.Errorf("unknown system: %q, %q", suite, sources)
	}
	put("etc/os-release", "ID=ubuntu\nVERSION_CODENAME=noble\n")
	put("etc/apt/sources.list.d/debian.sources", "Types: deb\n")
	if suite, sources := debian(root); suite != "bookworm" || sources != nil {
		t.Errorf("another distribution: %q, %q", suite, sources)
	}
	put("etc/os-release", "ID=debian\nVERSION_CODENAME=\"trixie\"\n")
	suite, sources := debian(root)
	if suite != "trixie" || len(sources) != 1 {
		t.Errorf("Debian: %q, %q", suite, sources)
	}
	args := baseArgs(suite, sources, []string{"npm"})
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--include=bash,") && strings.HasSuffix(a, ",npm") }) {
		t.Errorf("the packages: %q", args)
	}
	if i := slices.Index(args, "trixie"); i < 0 || args[i+1] != "-" || args[i+2] != sources[0] {
		t.Errorf("arguments %q", args)
	}
	for _, a := range args {
		if strings.Contains(a, "hook") || strings.Contains(a, "://") {
			t.Errorf("argument %q", a)
		}
	}
}

// A builder that fails says why, in the store.
func TestBaseFailureIsRecorded(t *testing.T) {
	s := open(t)
	bin := t.TempDir()
	// The program is found by PATH; this one is no Debian.
	if err := os.WriteFile(filepath.Join(bin, "mmdebstrap"), []byte("#!/bin/sh\necho 'I: starting' >&2\necho 'E: no such suite' >&2\necho 'E: mmdebstrap failed to run' >&2\nexit 25\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	if err := s.StartBase(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Wait()
	if _, err := s.Resolve("base"); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "E: no such suite") {
		t.Errorf("got %v", err)
	}
	if images, _ := filepath.Glob(filepath.Join(s.c.Dir, "sha256-*")); len(images) != 0 {
		t.Errorf("an image of what came before it failed: %q", images)
	}
	t.Setenv("PATH", t.TempDir())
	if err := s.StartBase(t.Context()); err == nil || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("without the program: %v", err)
	}
}

// A build that is cut off takes everything with it that it had started or mounted.
func TestCutOffBuildLeavesNothing(t *testing.T) {
	s := open(t)
	bin := t.TempDir()
	alive := filepath.Join(bin, "alive")
	if err := syscall.Mkfifo(alive, 0o600); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nmount -t tmpfs none \"$TMPDIR\" || exit 1\ntouch \"$TMPDIR/x\"\nsetsid sleep 30 >" + alive + " 2>&1 &\ntrap '' INT TERM\nwait\n"
	if err := os.WriteFile(filepath.Join(bin, "mmdebstrap"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := s.StartBase(ctx); err != nil {
		t.Fatal(err)
	}
	left, err := os.Open(alive) // waits until something of the build holds the other end
	if err != nil {
		t.Fatal(err)
	}
	defer left.Close()
	cancel()
	s.Wait()
	gone := make(chan error, 1)
	go func() {
		_, err := io.ReadAll(left) // ends when nothing holds it any more
		gone <- err
	}()
	select {
	case err := <-gone:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("something of the build lives on")
	}
	if _, err := s.Resolve("base"); !errors.Is(err, ErrFailed) || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("got %v", err)
	}
	if old, _ := filepath.Glob(filepath.Join(s.c.Dir, partial+"*")); len(old) != 0 {
		t.Errorf("left over: %q", old)
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), s.c.Dir) {
		t.Errorf("mounts: %s, %v", mounts, err)
	}
}

// Whatever bytes come as a tar, the store holds them or leaves nothing.
func FuzzUnpack(f *testing.F) {
	add := func(entries ...tar.Header) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range entries {
			h.Size = 0
			_ = w.WriteHeader(&h)
		}
		_ = w.Close()
		f.Add(b.Bytes())
	}
	add(dir("a"), symlink("a/b", "../.."), hardlink("c", "a/b/x"))
	add(tar.Header{Typeflag: tar.TypeReg, Name: "../x"}, symlink("tmp", "/"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		base := t.TempDir()
		s := openAt(t, Config{Dir: filepath.Join(base, "images"), MaxBytes: 1 << 16, MaxEntries: 100})
		_, err := s.Import(t.Context(), "x", bytes.NewReader(b))
		if entries, _ := os.ReadDir(base); len(entries) != 1 {
			t.Fatalf("outside the store: %v", entries)
		}
		if entries, _ := os.ReadDir(s.c.Dir); err != nil && len(entries) != 1 {
			t.Fatalf("%v, and left %v", err, entries)
		}
	})
}
