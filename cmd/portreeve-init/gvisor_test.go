package main

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// runsc is found by PORTREEVE_RUNSC, else in the repository's bin folder. There is no skipping: gVisor is what init is for.
func runscPath() (string, error) {
	path := os.Getenv("PORTREEVE_RUNSC")
	if path == "" {
		path, _ = filepath.Abs("../../bin/runsc")
	}
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("no runsc (hint: make build, or set PORTREEVE_RUNSC): %w", err)
	}
	return path, nil
}

// sandbox is a box under runsc.
type sandbox struct {
	*box
	runsc  string
	bundle string
	state  string
	id     string
}

func startGvisor() (*box, error) {
	program, err := initProgram()
	if err != nil {
		return nil, err
	}
	s, err := newSandbox(program)
	if err != nil {
		return nil, err
	}
	return s.box, s.start()
}

func newSandbox(program string) (*sandbox, error) {
	runsc, err := runscPath()
	if err != nil {
		return nil, err
	}
	b, err := newBox()
	if err != nil {
		return nil, err
	}
	s := &sandbox{box: b, runsc: runsc, bundle: filepath.Dir(b.root), state: filepath.Join(filepath.Dir(b.root), "state")}
	if out, err := exec.Command("cp", program, filepath.Join(b.root, "portreeve-init")).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("copying init: %s", out)
	}
	spec, err := json.Marshal(s.spec())
	if err != nil {
		return nil, err
	}
	return s, errors.Join(os.WriteFile(filepath.Join(s.bundle, "config.json"), spec, 0o644), os.Mkdir(s.state, 0o700), s.serve())
}

// spec is the smallest one that init needs: what it says here must be in the node's.
func (s *sandbox) spec() *specs.Spec {
	caps := []string{"CAP_SETUID", "CAP_SETGID", "CAP_KILL"}
	return &specs.Spec{
		Version: "1.2.1",
		Root:    &specs.Root{Path: s.root},
		Process: &specs.Process{
			Args: []string{"/portreeve-init"}, Cwd: "/", NoNewPrivileges: true,
			Env:          []string{"PORTREEVE_ENV_FLAVOUR=plain"},
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
		},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
			{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"ro"}},
			{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"mode=1777", "nosuid", "nodev"}},
			{Destination: "/run/portreeve", Type: "bind", Source: s.sockets, Options: []string{"bind", "ro"}},
		},
		Linux: &specs.Linux{Namespaces: []specs.LinuxNamespace{
			{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace}, {Type: specs.UTSNamespace}, {Type: specs.MountNamespace}, {Type: specs.NetworkNamespace},
		}},
	}
}

// run calls runsc. Its output goes to files, as a sandbox keeps what it inherits.
func (s *sandbox) run(args ...string) error {
	all := append([]string{"--root", s.state, "--platform=systrap", "--network=none", "--host-uds=open", "--overlay2=root:memory", "--ignore-cgroups"}, args...)
	cmd := exec.Command(s.runsc, all...)
	log, err := os.CreateTemp(s.bundle, "runsc")
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("runsc %s: %w: %s", args[0], err, bytes.TrimSpace(text))
	}
	return nil
}

func (s *sandbox) newID() {
	id := make([]byte, 8)
	rand.Read(id)
	s.id = hex.EncodeToString(id)
	remove := s.id
	atEnd(func() {
		s.run("delete", "--force", remove)
		s.stop()
		exec.Command("umount", "-l", filepath.Join(s.state, "null-netns")).Run()
	})
}

func (s *sandbox) start() error {
	s.newID()
	if err := s.run("create", "--bundle", s.bundle, s.id); err != nil {
		return err
	}
	if err := s.run("start", s.id); err != nil {
		return err
	}
	return s.ready()
}
