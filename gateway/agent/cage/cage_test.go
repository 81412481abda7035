package cage

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"portreeve.dev/gateway/agent/spawn"
)

func TestForbiddenCallsKill(t *testing.T) {
	t.Parallel()
	for name := range forbidden {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, role := range []Role{Edge, Inward} {
				if c := runChild(t, "forbidden "+name, role, nil); !c.killed() || c.out != "ready" {
					t.Errorf("%s: status %#x, said %q", role, c.status, c.out)
				}
			}
			if c := runChild(t, "forbidden "+name, 0, nil); c.status.Signaled() || !strings.HasPrefix(c.out, "ready") {
				t.Errorf("outside of the cage: status %#x, said %q", c.status, c.out)
			}
		})
	}
}

// Calls next to the forbidden ones that must go on working.
func TestAllowedTwinsSurvive(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		roles []Role
	}{
		{"thread", []Role{Edge, Inward}}, {"tgkill", []Role{Edge, Inward}}, {"socket", []Role{Edge, Inward}},
		{"prctl", []Role{Edge, Inward}}, {"ioctl", []Role{Edge, Inward}}, {"udp", []Role{Edge}},
	} {
		for _, role := range tt.roles {
			t.Run(tt.name+" "+role.String(), func(t *testing.T) {
				t.Parallel()
				if c := runChild(t, tt.name, role, nil); c.status != 0 || c.out != "ready\nsurvived" {
					t.Errorf("status %#x, said %q", c.status, c.out)
				}
			})
		}
	}
}

func TestOnlyGivenFilesAreReachable(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	top := filepath.Dir(dir)
	given := filepath.Join(top, "given")
	must := func(errs ...error) {
		t.Helper()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	must(os.Mkdir(given, 0o777), os.Chmod(given, 0o777), os.Symlink("../neighbour", filepath.Join(dir, "link")))
	for _, f := range []string{"own/there", "file", "given/file", "neighbour"} { // all could be written, were it for the uid alone
		must(os.WriteFile(filepath.Join(top, f), []byte("x"), 0o600), os.Chmod(filepath.Join(top, f), 0o666))
	}
	env := []string{dirEnv + "=" + dir, "READ_FILE=" + filepath.Join(top, "file"), "READ_DIR=" + given, "NEIGHBOUR=" + filepath.Join(top, "neighbour")}
	c := runChild(t, "files", Edge, env)
	want := []string{"read own works", "write own works", "rename own works", "remove own works", "list own works",
		"read given file works", "write given file refused", "read given dir works", "write given dir refused",
		"read neighbour refused", "read by dots refused", "read by link refused", "read passwd refused", "read status refused"}
	if got := strings.Split(c.out, "\n"); !slices.Equal(got, want) {
		t.Errorf("status %#x, got\n%s", c.status, c.out)
	}
	c = runChild(t, "files", 0, env)
	if strings.Contains(c.out, "refused") {
		t.Errorf("refused outside of the cage, so the test shows nothing:\n%s", c.out)
	}
}

func TestRefusesWithoutLandlock(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{Edge, Inward} {
		if c := runChild(t, "without", role, nil); c.status != 0 {
			t.Errorf("%s: status %#x, said %q", role, c.status, c.out)
		}
	}
	c := runChild(t, "insecure", Edge, nil)
	var r Report
	if err := json.Unmarshal([]byte(c.out), &r); err != nil {
		t.Fatalf("status %#x, said %q", c.status, c.out)
	}
	if r.LandlockABI != 0 || r.Files || r.Bind || r.Abstract || r.Signals || !r.Seccomp {
		t.Errorf("the report hides it: %+v", r)
	}
}

func TestRefusesPrivileges(t *testing.T) {
	if _, err := Enter(Config{Role: Edge}); err == nil || !strings.Contains(err.Error(), "uid 0") {
		t.Fatalf("as root: %v", err) // and this process must not be caged now
	}
	cmd, out := start(t, "enter", Edge, spawn.Rights{UID: testUID, GID: testUID, Keep: []uintptr{unix.CAP_NET_ADMIN}}, nil)
	if err := cmd.Wait(); err == nil || !strings.Contains(out.String(), "capabilities") {
		t.Errorf("with a capability: %v, %s", err, out)
	}
	if c := runChild(t, "enter", Edge, nil); c.status != 0 {
		t.Errorf("without: status %#x, said %q", c.status, c.out)
	}
	if c := runChild(t, "enter", 0, nil); c.status.ExitStatus() != 1 || !strings.Contains(c.out, "no filter") {
		t.Errorf("without a role: status %#x, said %q", c.status, c.out)
	}
	if c := runChild(t, "enter", Edge, []string{dirEnv + "=/nowhere/at/all"}); c.status.ExitStatus() != 1 {
		t.Errorf("with a directory that isn't there: status %#x, said %q", c.status, c.out)
	}
}

func TestEveryThreadIsCaged(t *testing.T) {
	t.Parallel()
	for _, role := range []Role{Edge, Inward} {
		mine, theirs := socketPair(t)
		cmd, out := start(t, "wait", role, spawn.Rights{UID: testUID, GID: testUID}, nil, theirs)
		theirs.Close()
		if _, err := mine.Read(make([]byte, 1)); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", cmd.Process.Pid))
		if err != nil || len(tasks) < 3 {
			t.Errorf("%d threads, %v", len(tasks), err)
		}
		for _, task := range tasks {
			b, err := os.ReadFile(task)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
				continue // it ended
			}
			for _, want := range []string{"Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000"} {
				if !strings.Contains(string(b), want) {
					t.Errorf("%s lacks %q (%v)", task, want, err)
				}
			}
		}
		limits, err := os.ReadFile(fmt.Sprintf("/proc/%d/limits", cmd.Process.Pid))
		core := slices.IndexFunc(strings.Split(string(limits), "\n"), func(l string) bool {
			return slices.Equal(strings.Fields(l)[:min(6, len(strings.Fields(l)))], []string{"Max", "core", "file", "size", "0", "0"})
		})
		if core < 0 {
			t.Errorf("core files are allowed (%v):\n%s", err, limits)
		}
		mine.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	}
}

func TestEdgeDoesItsWork(t *testing.T) {
	t.Parallel()
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	lf, err1 := l.File()
	u, err2 := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	uf, err3 := u.File()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	l.Close()
	u.Close()
	mine, theirs := socketPair(t)
	done := passed(mine, "for the edge")
	c := runChild(t, "edge", Edge, []string{dirEnv + "=" + directory(t)}, lf, theirs, uf)
	theirs.Close()
	report(t, c)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestInwardDoesItsWork(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	mine, theirs := socketPair(t)
	done := passed(mine, "for inward")
	c := runChild(t, "inward", Inward, []string{"TARGET=" + l.Addr().String()}, theirs, theirs)
	theirs.Close()
	report(t, c)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// report reads what the child said about its cage; all that this kernel can do must hold.
func report(t *testing.T, c child) {
	t.Helper()
	var r Report
	if err := json.Unmarshal([]byte(c.out), &r); err != nil || c.status != 0 {
		t.Fatalf("status %#x (killed by the filter: %v), said %q", c.status, c.killed(), c.out)
	}
	abi := landlockABI()
	want := Report{Role: r.Role, LandlockABI: abi, Files: true, Bind: abi >= 4, Abstract: abi >= 6, Signals: abi >= 6 && signalsAreSound(), Seccomp: true}
	checks := 6
	if want.Bind {
		checks++
	}
	if len(r.Checked) != checks {
		t.Errorf("%d checks, want %d: %q", len(r.Checked), checks, r.Checked)
	}
	if r.Checked = nil; !reflect.DeepEqual(r, want) {
		t.Errorf("report %+v, want %+v", r, want)
	}
}

// passed sends a pipe with text in it and waits for a socket that says the same.
func passed(c *net.UnixConn, text string) <-chan error {
	done := make(chan error, 1)
	go func() {
		done <- func() error {
			r, w, err := os.Pipe()
			if err != nil {
				return err
			}
			defer r.Close()
			w.WriteString(text)
			w.Close()
			if _, _, err := c.WriteMsgUnix([]byte("x"), unix.UnixRights(int(r.Fd())), nil); err != nil {
				return err
			}
			oob := make([]byte, 256)
			_, n, _, _, err := c.ReadMsgUnix(make([]byte, 1), oob)
			if err != nil {
				return err
			}
			msgs, err := unix.ParseSocketControlMessage(oob[:n])
			if err != nil || len(msgs) != 1 {
				return fmt.Errorf("%d messages, %w", len(msgs), err)
			}
			fds, err := unix.ParseUnixRights(&msgs[0])
			if err != nil {
				return err
			}
			f := os.NewFile(uintptr(fds[0]), "back")
			defer f.Close()
			b := make([]byte, 64)
			got, err := f.Read(b)
			if err != nil || string(b[:got]) != text {
				return fmt.Errorf("got %q, %w", b[:got], err)
			}
			return nil
		}()
	}()
	return done
}

func socketPair(t *testing.T) (mine *net.UnixConn, theirs *os.File) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(pair[0]), "mine")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.UnixConn), os.NewFile(uintptr(pair[1]), "theirs")
}
