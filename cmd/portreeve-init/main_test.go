package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// TestMain lets the test binary play three parts: the tests, the stage that builds the namespaces of a box, and process 1 in it.
// So a change by an overlay reaches init too.
func TestMain(m *testing.M) {
	switch os.Args[0] {
	case stageName:
		fmt.Fprintln(os.Stderr, "stage:", stage(os.Args[1]))
		os.Exit(1)
	case "/portreeve-init":
		main()
		os.Exit(0)
	}
	code := m.Run()
	closeBoxes()
	os.Exit(code)
}

// initProgram is this binary where that is possible, so that an overlay and the tests' own build reach init.
func initProgram() (string, error) {
	if selfIsStatic {
		return os.Executable()
	}
	return builtInit()
}

var builtInit = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("/var/tmp", "portreeve-init-test")
	if err != nil {
		return "", err
	}
	atEnd(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "portreeve-init")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-ldflags=-s -w", "-o", path, "portreeve.dev/cmd/portreeve-init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building init: %w\n%s", err, out)
	}
	return path, nil
})

var (
	endMu sync.Mutex
	ends  []func()
)

// atEnd runs f after all tests.
func atEnd(f func()) {
	endMu.Lock()
	defer endMu.Unlock()
	ends = append(ends, f)
}

func closeBoxes() {
	endMu.Lock()
	defer endMu.Unlock()
	for i := len(ends) - 1; i >= 0; i-- {
		ends[i]()
	}
}
