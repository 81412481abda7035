package edge

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"testing"
)

// asEdge, as the only argument, makes this program the edge process itself.
const asEdge = "caged-edge"

// program is this test once more, built without cgo: the C library makes system calls of its own, which the cage forbids.
var program = "/proc/self/exe"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == asEdge {
		if err := Run(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if !withCgo() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("/var/tmp", "portreeve-edge-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "edge.test")
	build := exec.Command("go", "test", "-c", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		panic(string(out))
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		panic(err)
	}
	return m.Run()
}

func withCgo() bool {
	info, _ := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if s.Key == "CGO_ENABLED" {
			return s.Value == "1"
		}
	}
	return false
}
