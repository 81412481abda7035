package nodes_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/nodes"
	"portreeve.dev/nodes/cgroup"
	"portreeve.dev/nodes/images"
	"portreeve.dev/nodes/runsc"
)

// A realRig is a node with gVisor, control groups and an image, and a network of its own making.
type realRig struct {
	*nodes.Node
	t      *testing.T
	config nodes.Config
	net    *testNetwork
	events chan nodes.Event

	mu    sync.Mutex
	inits map[string]net.Listener
}

// runscBinary finds the program; a machine without it can't run these tests, and must say so.
func runscBinary(t *testing.T) string {
	t.Helper()
	path := os.Getenv("PORTREEVE_RUNSC")
	if path == "" {
		path, _ = filepath.Abs("../bin/runsc")
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no runsc at %s: make build, or set PORTREEVE_RUNSC", path)
	}
	return path
}

// standIn builds the static process 1 of these tests, once.
var standIn = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "standin")
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "init")
	cmd := exec.Command("go", "build", "-o", out, "./testdata/standin")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the stand-in init: %w: %s", err, b)
	}
	return out, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := standIn(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

func newRealRig(t *testing.T) *realRig {
	t.Helper()
	state := stateDir(t)
	r := &realRig{t: t, events: make(chan nodes.Event, 100), inits: map[string]net.Listener{}}
	instance := nodes.InstanceOf(state)
	cli, err := runsc.New(runsc.Config{Binary: runscBinary(t), Root: state + "/node/run", Upper: state + "/node/upper"})
	if err != nil {
		t.Fatal(err)
	}
	store, err := images.Open(images.Config{Dir: state + "/images"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.BuildTiny(t.Context(), "/bin/busybox"); err != nil {
		t.Fatal(err)
	}
	tree, err := cgroup.Open(instance)
	if err != nil {
		t.Fatal(err)
	}
	init, err := standIn()
	if err != nil {
		t.Fatal(err)
	}
	r.net = newTestNetwork(t, instance)
	r.config = nodes.Config{StateDir: state, Instance: instance, Init: init, Driver: cli, Network: r.net, Firewall: openFirewall{}, Wire: r,
		Images: store, Cgroups: tree, Events: func(e nodes.Event) { r.events <- e }}
	if r.Node, err = nodes.New(r.config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r.Close()
		for _, l := range r.inits {
			_ = l.Close()
		}
		if err := r.Purge(ctx); err != nil {
			t.Error(err)
		}
		r.wantNothing()
		if err := tree.Purge(ctx); err != nil {
			t.Error(err)
		}
	})
	return r
}

// Bind and Unbind are the wire: here the test itself is the other end of init's socket.
func (r *realRig) Bind(_ context.Context, p nodes.Placement, init *os.File) error {
	if init == nil {
		return nil
	}
	l, err := net.FileListener(init)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if old := r.inits[p.Sandbox]; old != nil {
		_ = old.Close()
	}
	r.inits[p.Sandbox] = l
	return nil
}

func (r *realRig) Unbind(_ context.Context, p nodes.Placement) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.inits[p.Sandbox]; l != nil {
		_ = l.Close()
		delete(r.inits, p.Sandbox)
	}
	return nil
}

// wantNothing fails if the machine has anything of this instance.
func (r *realRig) wantNothing() {
	r.t.Helper()
	var left []string
	left = append(left, files(r.t, filepath.Join(r.config.StateDir, "node", "sandboxes"))...)
	left = append(left, files(r.t, filepath.Join(r.config.StateDir, "node", "upper"))...)
	groups, err := r.config.Cgroups.List()
	if err != nil {
		r.t.Error(err)
	}
	left = append(left, groups...)
	links, _ := r.net.List(context.Background())
	for _, l := range links {
		left = append(left, l.Netns)
	}
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		r.t.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, r.config.StateDir) && !strings.Contains(line, "null-netns") {
			left = append(left, line)
		}
	}
	left = append(left, processesNaming(r.config.StateDir+"/node/run")...)
	if len(left) != 0 {
		r.t.Errorf("left over: %q", left)
	}
}

// processesNaming returns the living processes with text in their command line.
func processesNaming(text string) []string {
	var all []string
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range dirs {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), text) {
			all = append(all, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return all
}

func (r *realRig) create(s nodes.Spec) nodes.Placement {
	r.t.Helper()
	p, err := r.Create(r.t.Context(), s)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// An initConn is a connection from a sandbox's init.
type initConn struct {
	t *testing.T
	net.Conn
	lines *bufio.Reader
}

func (r *realRig) init(sandbox string) *initConn {
	r.t.Helper()
	r.mu.Lock()
	l := r.inits[sandbox]
	r.mu.Unlock()
	if err := l.(*net.UnixListener).SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		r.t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		r.t.Fatalf("init of %s did not dial: %v", sandbox, err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return &initConn{r.t, c, bufio.NewReader(c)}
}

func (c *initConn) ask(command string) (string, error) {
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := fmt.Fprintln(c, command); err != nil {
		return "", err
	}
	line, err := c.lines.ReadString('\n')
	if err != nil {
		return "", err
	}
	return strconv.Unquote(strings.TrimSpace(line))
}

// want asks and compares.
func (c *initConn) want(command, want string) {
	c.t.Helper()
	if got, err := c.ask(command); err != nil || strings.TrimSpace(got) != want {
		c.t.Errorf("%s: got %q, %v, want %q", command, got, err, want)
	}
}

// wantPart is want for answers of which only a part is known.
func (c *initConn) wantPart(command, part string) {
	c.t.Helper()
	if got, err := c.ask(command); err != nil || !strings.Contains(got, part) {
		c.t.Errorf("%s: got %q, %v, want %q in it", command, got, err, part)
	}
}

func (r *realRig) wantEvents(want ...nodes.EventKind) {
	r.t.Helper()
	for _, k := range want {
		select {
		case e := <-r.events:
			if e.Kind != k {
				r.t.Fatalf("event %q, want %q", e.Kind, k)
			}
		case <-time.After(30 * time.Second):
			r.t.Fatalf("no event, want %q", k)
		}
	}
}

func small(name string) nodes.Spec {
	s := spec(name)
	s.Limits = nodes.Limits{MemoryBytes: 192 << 20, CPUMillis: 1000, Pids: 4096, WorkspaceBytes: 16 << 20, TmpBytes: 8 << 20}
	return s
}

// testNetwork is a network by the ip command: pairs into a netns that stands for the edge's.
type testNetwork struct {
	instance, edge string
	mu             sync.Mutex
	links          map[string]nodes.Link // by netns path
	next           byte
}

func newTestNetwork(t *testing.T, instance string) *testNetwork {
	t.Helper()
	n := &testNetwork{instance: instance, edge: "pte" + instance, links: map[string]nodes.Link{}}
	if err := ip("netns", "add", n.edge); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ip("netns", "del", n.edge); err != nil {
			t.Error(err)
		}
	})
	return n
}

func ip(args ...string) error {
	if b, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %q: %w: %s", args, err, b)
	}
	return nil
}

func (n *testNetwork) Make(ctx context.Context, _ string) (nodes.Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next += 2
	name, iface := fmt.Sprintf("pts%s-%d", n.instance, n.next), fmt.Sprintf("pt%s%d", n.instance, n.next)
	l := nodes.Link{Netns: "/run/netns/" + name, Interface: iface,
		Gateway: netip.AddrFrom4([4]byte{10, 200, 0, n.next}), Addr: netip.AddrFrom4([4]byte{10, 200, 0, n.next + 1})}
	n.links[l.Netns] = l
	return l, errors.Join(
		ip("netns", "add", name),
		ip("-n", n.edge, "link", "add", iface, "type", "veth", "peer", "name", "eth0", "netns", name),
		ip("-n", n.edge, "addr", "add", l.Gateway.String()+"/31", "dev", iface),
		ip("-n", name, "link", "set", "lo", "up"))
}

func (n *testNetwork) Readdress(ctx context.Context, l nodes.Link) error {
	name := filepath.Base(l.Netns)
	return errors.Join(
		ip("-n", name, "addr", "replace", l.Addr.String()+"/31", "dev", "eth0"),
		ip("-n", name, "link", "set", "eth0", "up"),
		ip("-n", name, "route", "replace", "default", "via", l.Gateway.String(), "dev", "eth0"))
}

func (n *testNetwork) Up(ctx context.Context, l nodes.Link) error {
	return ip("-n", n.edge, "link", "set", l.Interface, "up")
}

func (n *testNetwork) Remove(ctx context.Context, l nodes.Link) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.links[l.Netns]; !ok {
		return nil
	}
	delete(n.links, l.Netns)
	return errors.Join(ip("-n", n.edge, "link", "del", l.Interface), ip("netns", "del", filepath.Base(l.Netns)))
}

func (n *testNetwork) List(context.Context) ([]nodes.Link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []nodes.Link
	for _, l := range n.links {
		all = append(all, l)
	}
	return all, nil
}

// openFirewall has no rules: these tests are about everything else.
type openFirewall struct{}

func (openFirewall) Add(context.Context, string, netip.Addr) error    { return nil }
func (openFirewall) Remove(context.Context, string, netip.Addr) error { return nil }

func TestRealLife(t *testing.T) {
	r := newRealRig(t)
	s := small("0190aaaa-bbbb-7ccc-8ddd-0123456789ab")
	s.Env = map[string]string{"GREETING": "hello"}
	p := r.create(s)
	c := r.init(s.Sandbox)

	// Who runs, with what rights.
	c.want("sh id -u; for f in CapInh CapPrm CapEff CapBnd NoNewPrivs; do grep $f: /proc/self/status | tr -d '[:space:]'; echo; done",
		"0\nCapInh:0000000000000000\nCapPrm:00000000000000e0\nCapEff:00000000000000e0\nCapBnd:00000000000000e0\nNoNewPrivs:1")
	c.want("user sh id -u; grep CapEff: /proc/self/status | tr -d '[:space:]'", "1001\nCapEff:0000000000000000")
	c.want("sh hostname; cat /etc/resolv.conf; tail -n1 /etc/hosts", "sbx-0123456789ab\nnameserver 10.200.0.2\n10.200.0.3 sbx-0123456789ab")
	c.wantPart("env", "PORTREEVE_ENV_GREETING=hello")
	if env, err := c.ask("env"); err != nil || strings.Contains(env, "PORTREEVE_RUNSC") {
		t.Errorf("environment %q, %v", env, err)
	}

	// What can be written. Each refusal has its neighbour that is allowed.
	c.want("user create /workspace/mine", "")
	c.want("user create /tmp/mine", "")
	for _, path := range []string{"/new", "/bin/new", "/.portreeve/new", "/run/portreeve/new", "/etc/hosts"} {
		c.want("create "+path, "read-only file system")
	}
	c.want("user connect-unix /run/portreeve/init.sock", "permission denied")
	c.want("connect-unix /run/portreeve/init.sock", "")
	c.want("listen-unix /tmp/own.sock", "")
	c.wantPart("listen-unix /run/portreeve/own.sock", "read-only file system")

	// How much.
	c.want("user fill /workspace/fits 12", "12")
	c.wantPart("user fill /workspace/full 12", "no space left on device")
	c.want("user fill /tmp/fits 4", "4")
	c.wantPart("user fill /tmp/full 12", "no space left on device")

	// Nothing of it is in the image or anywhere on the host.
	if left := files(t, filepath.Join(r.config.StateDir, "node", "sandboxes", p.RunscID, "workspace")); len(left) != 0 {
		t.Errorf("the workspace's directory on the host holds %q", left)
	}
	if left := files(t, filepath.Join(r.config.StateDir, "node", "upper")); len(left) != 0 {
		t.Errorf("the upper directory holds %q", left)
	}

	// Asleep, it doesn't answer; awake, it goes on with the same connection.
	if err := r.Pause(t.Context(), s.Sandbox); err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(300 * time.Millisecond))
	fmt.Fprintln(c, "sh echo awake")
	if line, err := c.lines.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a paused sandbox answered %q, %v", line, err)
	}
	if q, err := r.Resume(t.Context(), s.Sandbox, 8); err != nil || q.Generation != 2 || q.Pid != p.Pid {
		t.Fatalf("resumed %+v, %v", q, err)
	}
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if line, err := c.lines.ReadString('\n'); err != nil || line != "\"awake\\n\"\n" {
		t.Errorf("after the resume: %q, %v", line, err)
	}

	// A restarted node finds it, and init dials the new listener.
	r.Close()
	_ = c.Close()
	r.Unbind(t.Context(), p)
	var err error
	if r.Node, err = nodes.New(r.config); err != nil {
		t.Fatal(err)
	}
	taken, err := r.Adopt(t.Context())
	if err != nil || len(taken) != 1 || taken[0].Pid != p.Pid || taken[0].Generation != 2 {
		t.Fatalf("adopted %+v, %v", taken, err)
	}
	c = r.init(s.Sandbox)
	c.want("sh ls /workspace", "fits\nfull\nmine")

	if err := r.Delete(t.Context(), s.Sandbox); err != nil {
		t.Fatal(err)
	}
	r.wantEvents(nodes.Deleted)
	r.wantNothing()
}

func TestRealNetwork(t *testing.T) {
	r := newRealRig(t)
	s := small("net")
	p := r.create(s)
	c := r.init(s.Sandbox)
	// The address and route that were there at start are the sandbox's; nothing listens at the other end.
	c.want("sh ip -4 -o addr show eth0 | tr -s ' ' | cut -d' ' -f4", p.Addr.String()+"/31")
	c.want("dial "+p.Gateway.String()+":80", "connection refused")
}

func TestRealOutOfMemory(t *testing.T) {
	r := newRealRig(t)
	r.create(small("oom"))
	c := r.init("sbx_oom")
	c.want("eat 40", "ate")
	if got, err := c.ask("eat 400"); err == nil {
		t.Errorf("400 MiB in 192: %q", got)
	}
	r.wantEvents(nodes.OutOfMemory, nodes.Deleted)
	r.wantNothing()
}

func TestRealExit(t *testing.T) {
	r := newRealRig(t)
	r.create(small("exit"))
	if got, err := r.init("sbx_exit").ask("exit"); err == nil {
		t.Errorf("answered %q", got)
	}
	r.wantEvents(nodes.Exited, nodes.Deleted)
	r.wantNothing()
}

// The host's process limit ends a sandbox that breaks it; the neighbour goes on.
func TestRealProcessLimit(t *testing.T) {
	r := newRealRig(t)
	bomb := small("bomb")
	bomb.Limits.Pids = 512
	r.create(bomb)
	r.create(small("calm"))
	calm, c := r.init("sbx_calm"), r.init("sbx_bomb")
	c.want("spawn 20", "20")
	got, err := c.ask("spawn 2000")
	if err == nil && got == "2000" {
		t.Error("2000 processes in a limit of 512")
	}
	calm.want("sh echo fine", "fine")
}

// Each step fails for real, after it has done its work.
func TestRealFailedCreateLeavesNothing(t *testing.T) {
	for _, step := range []string{"make", "create", "readdress", "bind", "firewall", "up", "start"} {
		t.Run(step, func(t *testing.T) {
			r := newRealRig(t)
			f := &failing{step: step}
			f.Driver, f.Network, f.Wire = r.config.Driver, r.net, r
			r.config.Driver, r.config.Network, r.config.Wire, r.config.Firewall = failingDriver{f}, failingNetwork{f}, failingWire{f}, failingFirewall{f}
			var err error
			if r.Node, err = nodes.New(r.config); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Create(t.Context(), small("a")); !errors.Is(err, errStep) {
				t.Fatalf("got %v", err)
			}
			r.wantNothing()
			f.step = ""
			r.create(small("a"))
			r.init("sbx_a").want("sh echo fine", "fine")
		})
	}
}

// runsc's own failure: it leaves its control group behind, limits set.
func TestRealRunscFailureLeavesNothing(t *testing.T) {
	r := newRealRig(t)
	img, err := r.config.Images.Resolve("tiny")
	if err != nil {
		t.Fatal(err)
	}
	good := img.Rootfs
	if err := os.Rename(good, good+".away"); err != nil {
		t.Fatal(err)
	}
	r.config.Images = fixedImage{img}
	n, err := nodes.New(r.config)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	_, err = n.Create(t.Context(), small("a"))
	if e, ok := errors.AsType[*runsc.Error](err); !ok || !strings.Contains(e.Message, "no such file or directory") {
		t.Fatalf("got %v", err)
	}
	r.wantNothing()
	if err := os.Rename(good+".away", good); err != nil {
		t.Fatal(err)
	}
	r.create(small("a"))
}

// Two instances on one machine: purging one leaves the other's sandboxes alone.
func TestRealPurgeTouchesOneInstance(t *testing.T) {
	a, b := newRealRig(t), newRealRig(t)
	a.create(small("same"))
	b.create(small("same"))
	c := b.init("sbx_same")
	if err := a.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.wantNothing()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil || strings.Contains(string(mounts), a.config.StateDir) {
		t.Errorf("mounts of the purged instance are left: %v", err)
	}
	c.want("sh echo fine", "fine")
	a.create(small("again"))
}

type fixedImage struct{ images.Image }

func (f fixedImage) Resolve(string) (images.Image, error) { return f.Image, nil }

var errStep = errors.New("the step failed")

// failing does a step and then says that it failed.
type failing struct {
	nodes.Driver
	nodes.Network
	nodes.Wire
	step string
}

func (f *failing) after(step string, err error) error {
	if err == nil && f.step == step {
		return errStep
	}
	return err
}

type (
	failingDriver   struct{ *failing }
	failingNetwork  struct{ *failing }
	failingWire     struct{ *failing }
	failingFirewall struct{ *failing }
)

func (f failingDriver) Create(ctx context.Context, r runsc.Create) (int, error) {
	pid, err := f.Driver.Create(ctx, r)
	return pid, f.after("create", err)
}
func (f failingDriver) Start(ctx context.Context, id string) error {
	return f.after("start", f.Driver.Start(ctx, id))
}
func (f failingDriver) Clean(ctx context.Context) error { return f.Driver.(nodes.Cleaner).Clean(ctx) }
func (f failingDriver) Sweep() error                    { return f.Driver.(nodes.Cleaner).Sweep() }
func (f failingDriver) Resume(ctx context.Context, id string) error {
	return f.Driver.Resume(ctx, id)
}
func (f failingDriver) List(ctx context.Context) ([]runsc.State, error) { return f.Driver.List(ctx) }

func (f failingNetwork) Make(ctx context.Context, s string) (nodes.Link, error) {
	l, err := f.Network.Make(ctx, s)
	if err := f.after("make", err); err != nil {
		return nodes.Link{}, errors.Join(err, f.Network.Remove(ctx, l)) // its contract: on error nothing is left
	}
	return l, nil
}
func (f failingNetwork) Readdress(ctx context.Context, l nodes.Link) error {
	return f.after("readdress", f.Network.Readdress(ctx, l))
}
func (f failingNetwork) Up(ctx context.Context, l nodes.Link) error {
	return f.after("up", f.Network.Up(ctx, l))
}
func (f failingNetwork) List(ctx context.Context) ([]nodes.Link, error) { return f.Network.List(ctx) }

func (f failingWire) Bind(ctx context.Context, p nodes.Placement, init *os.File) error {
	return f.after("bind", f.Wire.Bind(ctx, p, init))
}

func (f failingFirewall) Add(ctx context.Context, iface string, a netip.Addr) error {
	return f.after("firewall", nil)
}
func (f failingFirewall) Remove(context.Context, string, netip.Addr) error { return nil }
