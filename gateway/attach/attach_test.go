package attach

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Words by which this program becomes something else.
const (
	asProbe  = "attach-probe"  // the command: tries everything and says what came of it
	asRunner = "attach-runner" // a process that runs a command and is then killed
	asNobody = "attach-nobody" // the same, as a user without rights
)

func TestMain(m *testing.M) {
	if len(os.Args) > 2 {
		switch os.Args[1] {
		case InnerCommand:
			os.Exit(Inner(os.Args[2:]))
		case asProbe:
			probe(os.Args[2:])
			os.Exit(0)
		case asRunner, asNobody:
			code, err := Run(context.Background(), Config{Socket: os.Args[2], Argv: os.Args[3:], Env: os.Environ(), Stdout: os.Stdout, Stderr: os.Stderr})
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				code = 99
			}
			os.Exit(code)
		}
	}
	os.Exit(m.Run())
}

// A finding is what the probe saw.
type finding struct {
	Reached map[string]string // what was tried, and "" or why it failed
	Links   []string
	Caps    map[string]string // lines of /proc/self/status
}

// probe tries what a command may not, given as pairs of network and address, and the pid of a process outside.
func probe(args []string) {
	f := finding{Reached: map[string]string{}, Caps: map[string]string{}}
	note := func(what string, err error) {
		f.Reached[what] = ""
		if err != nil {
			f.Reached[what] = err.Error()
		}
	}
	for _, target := range args[1:] {
		network, address, _ := strings.Cut(target, "=")
		nc, err := net.DialTimeout(network, address, 2*time.Second)
		if err == nil {
			nc.Close()
		}
		note(target, err)
	}
	links, _ := net.Interfaces()
	for _, l := range links {
		if l.Flags&net.FlagUp != 0 {
			f.Links = append(f.Links, l.Name)
		}
	}
	for _, ns := range []string{"/proc/1/ns/net", "/proc/" + args[0] + "/ns/net"} {
		fd, err := unix.Open(ns, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
		}
		note("entering "+ns, err)
	}
	note("uncovering /run", unix.Unmount("/run", unix.MNT_DETACH))
	note("a raw socket", func() error { _, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0); return err }())
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if name, value, ok := strings.Cut(line, ":"); ok && (strings.HasPrefix(name, "Cap") || name == "NoNewPrivs") {
			f.Caps[name] = strings.TrimSpace(value)
		}
	}
	json.NewEncoder(os.Stdout).Encode(f)
}

// proxy is what stands behind the socket: it greets.
func proxy(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "door.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer nc.Close()
				io.WriteString(nc, "hello ")
				io.Copy(nc, nc)
			}()
		}
	}()
	return path
}

func dir(t *testing.T) string {
	t.Helper()
	d, err := os.MkdirTemp("/tmp", "attach")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(d) })
	if err := os.Chmod(d, 0o755); err != nil {
		t.Fatal(err)
	}
	return d
}

func runs(t *testing.T, socket string, argv ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code, err := Run(t.Context(), Config{Socket: socket, Argv: argv, Env: os.Environ(), Stdout: &out, Stderr: &errs})
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	return out.String(), errs.String(), code
}

func serve(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// found runs the probe and returns what it saw.
func found(t *testing.T, targets ...string) finding {
	t.Helper()
	out, errs, code := runs(t, proxy(t, dir(t)), append([]string{"/proc/self/exe", asProbe, strconv.Itoa(os.Getpid())}, targets...)...)
	var f finding
	if err := json.Unmarshal([]byte(out), &f); err != nil || code != 0 {
		t.Fatalf("%v, exit %d: %s%s", err, code, out, errs)
	}
	return f
}

var wayOut = fmt.Sprintf("tcp=127.0.0.1:%d", Port)

func TestNothingLeavesButThroughTheSocket(t *testing.T) {
	outside := serve(t, "tcp4", "127.0.0.1:0").Addr().String()
	f := found(t, wayOut, fmt.Sprintf("tcp=[::1]:%d", Port), "tcp="+outside, "tcp=203.0.113.1:443", "udp=203.0.113.1:53", "tcp=[2001:db8::1]:443")
	for what, why := range f.Reached {
		if want := what == wayOut || strings.HasPrefix(what, "tcp=[::1]"); (why == "") != want {
			t.Errorf("%s: %q", what, why)
		}
	}
	if !slices.Equal(f.Links, []string{"lo"}) {
		t.Errorf("its links are %v", f.Links)
	}
}

func TestServicesOfTheMachineAreOutOfReach(t *testing.T) {
	run, err := os.MkdirTemp("/run", "attach-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	below := serve(t, "unix", filepath.Join(run, "sock")).Addr().String()
	abstract := serve(t, "unix", "@attach-test-"+strconv.Itoa(os.Getpid())).Addr().String()
	f := found(t, "unix="+below, "unix="+abstract, wayOut)
	for what, why := range f.Reached {
		if (why == "") != (what == wayOut) {
			t.Errorf("%s: %q", what, why)
		}
	}
}

func TestCommandHasNoRights(t *testing.T) {
	f := found(t)
	if f.Caps["NoNewPrivs"] != "1" {
		t.Errorf("it may gain rights: %v", f.Caps)
	}
	allowed := uint64(0)
	for _, c := range kept {
		allowed |= 1 << c
	}
	for _, set := range []string{"CapEff", "CapPrm", "CapBnd"} {
		got, err := strconv.ParseUint(f.Caps[set], 16, 64)
		if err != nil || got&^allowed != 0 {
			t.Errorf("%s is %s: %#x too many, %v", set, f.Caps[set], got&^allowed, err)
		}
	}
	for _, set := range []string{"CapInh", "CapAmb"} {
		if strings.Trim(f.Caps[set], "0") != "" {
			t.Errorf("%s is %s", set, f.Caps[set])
		}
	}
}

func TestBytesPassBothWays(t *testing.T) {
	socket := proxy(t, dir(t))
	out, errs, code := runs(t, socket, "bash", "-c", fmt.Sprintf(`exec 3<>/dev/tcp/127.0.0.1/%d; echo there >&3; head -c 11 <&3`, Port))
	if out != "hello there" || code != 0 {
		t.Errorf("%q, exit %d: %s", out, code, errs)
	}
}

func TestExitCodes(t *testing.T) {
	socket := proxy(t, dir(t))
	for command, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "kill -15 $$": 143} {
		if _, errs, code := runs(t, socket, "sh", "-c", command); code != want {
			t.Errorf("%s: exit %d, want %d: %s", command, code, want, errs)
		}
	}
	if _, errs, code := runs(t, socket, "no-such-command-here"); code != 127 || !strings.Contains(errs, "no-such-command-here") {
		t.Errorf("a command that isn't there: exit %d: %s", code, errs)
	}
}

func TestCommandEndsWithItsRunner(t *testing.T) {
	socket := proxy(t, dir(t))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", asRunner, socket, "sh", "-c", "echo up; exec sleep 20")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	// The command has the other end: it is at its end when nobody has it any more.
	if _, err := r.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the command lives on: %v", err)
	}
}

func TestSignalsReachTheCommand(t *testing.T) {
	socket := proxy(t, dir(t))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := exec.Command("/proc/self/exe", asRunner, socket, "bash", "-c", "trap 'echo told; exit 5' TERM; echo up; while :; do sleep 0.05; done")
	cmd.Stdout, cmd.Stdin = w, nil
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	r.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if got, err := io.ReadAll(r); string(got) != "told\n" {
		t.Errorf("the command said %q, %v", got, err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 5 {
		t.Errorf("the runner ended with %v", err)
	}
}

// A user without any rights, and the program where that user can read it.
func TestWithoutRoot(t *testing.T) {
	d := dir(t)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(d, "attach.test")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := proxy(t, d)
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, asNobody, socket, program, asProbe, strconv.Itoa(os.Getpid()), wayOut, "tcp=203.0.113.1:443")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: false}}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	var f finding
	if err := json.Unmarshal(out, &f); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if f.Reached[wayOut] != "" || f.Reached["tcp=203.0.113.1:443"] == "" || f.Reached["uncovering /run"] == "" || strings.Trim(f.Caps["CapEff"], "0") != "" || strings.Trim(f.Caps["CapAmb"], "0") != "" {
		t.Errorf("found %+v", f)
	}
}

func TestVariables(t *testing.T) {
	d := dir(t)
	env, err := Variables([]string{"HOME=/root", "NO_PROXY=*", "no_proxy=good.test", "https_proxy=http://other", "SSL_CERT_FILE=/x"}, d, "-----trust-----\n")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		if _, twice := got[name]; twice {
			t.Errorf("%s stands there twice", name)
		}
		got[name] = value
	}
	way := fmt.Sprintf("http://127.0.0.1:%d", Port)
	for name, want := range map[string]string{"HOME": "/root", "NO_PROXY": "", "no_proxy": "", "https_proxy": way, "HTTP_PROXY": way, "ALL_PROXY": way,
		"SSL_CERT_FILE": d + "/bundle.pem", "NODE_EXTRA_CA_CERTS": d + "/ca.pem", "npm_config_cafile": d + "/bundle.pem", "WGETRC": d + "/wgetrc"} {
		if got[name] != want {
			t.Errorf("%s is %q, want %q", name, got[name], want)
		}
	}
	if bundle, err := os.ReadFile(filepath.Join(d, "bundle.pem")); err != nil || !bytes.Contains(bundle, []byte("-----trust-----")) {
		t.Errorf("the bundle lacks the root: %v", err)
	}
}
