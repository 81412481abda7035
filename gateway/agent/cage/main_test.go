package cage

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"portreeve.dev/gateway/agent/spawn"
)

// What is tested here ends the process or never lets it out again, so it runs in children: this program once more,
// as a uid of nobody's and without capabilities, told by the environment what to do.
const (
	actionEnv = "PORTREEVE_CAGE_TEST_ACTION"
	roleEnv   = "PORTREEVE_CAGE_TEST_ROLE" // empty: no cage, for the twin
	dirEnv    = "PORTREEVE_CAGE_TEST_DIR"

	testUID = 1900000099 // of no process: the wall of a portreeve that runs here must not be about it
)

// program is the path of this test, built without cgo: the C library makes system calls of its own.
var program = "/proc/self/exe"

func TestMain(m *testing.M) {
	if action := os.Getenv(actionEnv); action != "" {
		os.Exit(act(action))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "CGO_ENABLED" && s.Value == "1" {
				dir, err := os.MkdirTemp("", "portreeve-cage-")
				if err != nil {
					panic(err)
				}
				defer os.RemoveAll(dir)
				program = filepath.Join(dir, "cage.test")
				build := exec.Command("go", "test", "-c", "-o", program, ".")
				build.Env = append(os.Environ(), "CGO_ENABLED=0")
				if out, err := build.CombinedOutput(); err != nil {
					panic(string(out))
				}
				if err := os.Chmod(dir, 0o755); err != nil {
					panic(err)
				}
			}
		}
	}
	return m.Run()
}

// A child that ended.
type child struct {
	out    string
	status syscall.WaitStatus
}

// killed: by the filter.
func (c child) killed() bool { return c.status.Signaled() && c.status.Signal() == unix.SIGSYS }

func start(t *testing.T, action string, role Role, rights spawn.Rights, env []string, files ...*os.File) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command(program)
	cmd.Env = append([]string{actionEnv + "=" + action}, env...)
	if role != 0 {
		cmd.Env = append(cmd.Env, roleEnv+"="+role.String())
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = &out, &out, files
	if err := spawn.Start(cmd, rights); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

func runChild(t *testing.T, action string, role Role, env []string, files ...*os.File) child {
	t.Helper()
	cmd, out := start(t, action, role, spawn.Rights{UID: testUID, GID: testUID}, env, files...)
	_ = cmd.Wait()
	return child{strings.TrimSpace(out.String()), cmd.ProcessState.Sys().(syscall.WaitStatus)}
}

// directory is one that the child's uid can write to, and reach.
func directory(t *testing.T) string {
	t.Helper()
	top, err := os.MkdirTemp("/tmp", "portreeve-cage-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	dir := filepath.Join(top, "own")
	for _, err := range []error{os.Chmod(top, 0o755), os.Mkdir(dir, 0o700), os.Chown(dir, testUID, testUID)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
