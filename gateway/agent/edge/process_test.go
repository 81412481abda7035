package edge

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/agent/spawn"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes/netns"
	"portreeve.dev/nodes/netns/thread"
)

const edgeUID = 1900000001

// box is the sandbox of these tests: an address in a namespace that also holds an upstream and the upstream's DNS server.
var box = egress.Binding{Sandbox: sbx, Org: org, Incarnation: 1, Generation: 1, Addr: netip.MustParseAddr("10.200.0.1"), MinRevision: 1}

// A town is that namespace: everything is an address of lo, also the synthetic range.
type town struct {
	ns       *os.File
	upstream *http.Server
	dns      *dns.Server
}

func newTown(t *testing.T) *town {
	t.Helper()
	w := &town{}
	if err := thread.Do(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if w.ns, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		return addresses("10.200.0.0/31", "10.200.0.1/32", "203.0.113.10/32", "203.0.113.53/32", "198.18.0.0/15")
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.ns.Close() })
	w.serve(t)
	return w
}

func addresses(all ...string) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, a := range all {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(lo, addr); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	// The upstream is reached from another address than its own, as one elsewhere would be: a machine's own are never dialled.
	upstream, _ := netlink.ParseAddr("203.0.113.10/32")
	return netlink.RouteReplace(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: upstream.IPNet, Src: net.IPv4(10, 200, 0, 0),
		Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST})
}

// serve runs an upstream and the DNS server that knows it.
func (w *town) serve(t *testing.T) {
	t.Helper()
	var l net.Listener
	var p net.PacketConn
	w.in(t, func() (err error) {
		if l, err = net.Listen("tcp4", "203.0.113.10:8080"); err != nil {
			return err
		}
		p, err = net.ListenPacket("udp4", "203.0.113.53:53")
		return err
	})
	w.upstream = &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(rw, "%s%s from %s", r.Host, r.URL.Path, r.RemoteAddr)
	})}
	w.dns = &dns.Server{PacketConn: p, Handler: dns.HandlerFunc(func(rw dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}, A: net.IPv4(203, 0, 113, 10)}}
		}
		rw.WriteMsg(m)
	})}
	go w.upstream.Serve(l)
	go w.dns.ActivateAndServe()
	t.Cleanup(func() { w.upstream.Close(); w.dns.Shutdown() })
}

func (w *town) in(t *testing.T, f func() error) {
	t.Helper()
	if err := netns.Do(int(w.ns.Fd()), f); err != nil {
		t.Fatal(err)
	}
}

// dial connects as the sandbox does.
func (w *town) dial(network, addr string) (c net.Conn, err error) {
	d := dialFrom(box)
	if network == "udp4" {
		d.LocalAddr = &net.UDPAddr{IP: box.Addr.AsSlice()}
	}
	err = netns.Do(int(w.ns.Fd()), func() (err error) {
		c, err = d.Dial(network, addr)
		return err
	})
	return c, err
}

// get asks for a page by name, from the sandbox.
func (w *town) get(t *testing.T, addr, host, path string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return w.dial("tcp4", addr) }}}
	r, err := client.Get("http://" + host + ":8080" + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

// A process is a real edge: another uid, in its cage, in the town.
type process struct {
	cmd        *exec.Cmd
	supervisor *link.Conn
	log        string
}

func startProcess(t *testing.T, w *town, dir string, change ...func(*exec.Cmd)) *process {
	t.Helper()
	mine, theirs, err := link.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	socket, err := link.Socket(mine)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(program, asEdge), supervisor: link.NewConn(socket, nil, link.Limits{}), log: filepath.Join(t.TempDir(), "log")}
	stderr, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	p.cmd.Env, p.cmd.ExtraFiles, p.cmd.Stderr = []string{}, []*os.File{theirs}, stderr
	for _, f := range change {
		f(p.cmd)
	}
	if err := spawn.Start(p.cmd, spawn.Rights{UID: edgeUID, GID: edgeUID, Netns: w.ns}); err != nil {
		t.Fatal(err)
	}
	go p.supervisor.Run(context.Background())
	t.Cleanup(func() { p.kill() })
	var ready child.Ready
	config := fmt.Appendf(nil, `{"dir":%q,"upstream_dns":["203.0.113.53:53"],"synthetic":"198.18.0.0/15","limits":{"connections":100,"names":100}}`, dir)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.supervisor.Call(ctx, "start", child.Start{Config: config}, &ready); err != nil {
		t.Fatalf("starting: %v\n%s", err, p.said())
	}
	return p
}

func (p *process) said() string {
	text, _ := os.ReadFile(p.log)
	return string(text)
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
	p.supervisor.Close()
}

// equip does the node's part: bindings, and sockets where the names' addresses lead.
func (p *process) equip(t *testing.T, w *town, mux *link.Mux, names ...role.Name) role.EdgeHello {
	t.Helper()
	node := talk(t, p.supervisor, "node", mux)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var hello role.EdgeHello
	if err := node.Call(ctx, role.EdgeSync, role.Sync{Bindings: []egress.Binding{box}, Names: names}, &hello); err != nil {
		t.Fatalf("%v\n%s", err, p.said())
	}
	var s *set
	w.in(t, func() (err error) {
		s, err = listenAt("198.18.0.16:8080", "10.200.0.0:53")
		return err
	})
	defer s.close()
	if err := node.Call(ctx, role.EdgeSockets, struct{}{}, nil, s.files...); err != nil {
		t.Fatalf("%v\n%s", err, p.said())
	}
	return hello
}

// A store is control's end: it keeps what is shipped.
type store struct {
	mu     sync.Mutex
	all    []decisions.Decision
	spools map[string]bool
	fail   bool
}

func (s *store) mux() *link.Mux {
	mux := link.NewMux()
	link.Handle(mux, role.ControlDecisions, func(_ context.Context, shipped decisions.Shipment) (decisions.Acked, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.fail {
			return decisions.Acked{}, fmt.Errorf("no room")
		}
		if s.spools == nil {
			s.spools = map[string]bool{}
		}
		s.spools[shipped.Spool] = true
		var acked decisions.Acked
		for _, row := range shipped.Rows {
			acked.Seq = row.Seq
			if row.With != 0 {
				continue // another row says all of it
			}
			d, err := row.Decision()
			if err != nil {
				return acked, err
			}
			s.keep(d)
		}
		return acked, nil
	})
	return mux
}

// keep has an end take the place of its beginning, as control does. The caller holds the lock.
func (s *store) keep(d decisions.Decision) {
	if i := slices.IndexFunc(s.all, func(b decisions.Decision) bool { return b.ID == d.ID }); i >= 0 {
		s.all[i] = d
		return
	}
	s.all = append(s.all, d)
}

// has reports whether such a decision arrived, and how often.
func (s *store) has(match func(decisions.Decision) bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range s.all {
		if match(d) {
			n++
		}
	}
	return n
}

// files counts the spools that decisions came from.
func (s *store) files() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spools)
}

// edgeDir is a directory that only the edge's uid can use.
func edgeDir(t *testing.T) string {
	t.Helper()
	top, err := os.MkdirTemp("/var/tmp", "portreeve-edge-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	dir := filepath.Join(top, "edge")
	for _, err := range []error{os.Chmod(top, 0o755), os.Mkdir(dir, 0o700), os.Chown(dir, edgeUID, edgeUID)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRecordOutlivesAKill(t *testing.T) {
	w, dir := newTown(t), edgeDir(t)
	first := startProcess(t, w, dir)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", first.cmd.Process.Pid))
	if err != nil || !strings.Contains(string(status), "\nSeccomp:\t2\n") || !strings.Contains(string(status), "\nCapEff:\t0000000000000000\n") {
		t.Fatalf("it is in no cage: %v\n%s", err, status)
	}
	told := make(chan role.Name, 8)
	mux := link.NewMux()
	link.Handle(mux, role.EdgeName, func(_ context.Context, n role.Name) (struct{}, error) { told <- n; return struct{}{}, nil })
	first.equip(t, w, mux)

	// Control gives the policy, and has no room for decisions.
	shop := &store{fail: true}
	control := talk(t, first.supervisor, "control", shop.mux())
	if err := control.Call(t.Context(), feed.Policies, policy(1, "good.test", "late.test"), nil); err != nil {
		t.Fatal(err)
	}
	addr := w.lookup(t, "good.test")
	if addr.String() != "198.18.0.16" {
		t.Fatalf("good.test is at %v", addr)
	}
	name := next(t, told)
	if code, body := w.get(t, "198.18.0.16:8080", "good.test", "/first"); code != 200 || !strings.HasPrefix(body, "good.test:8080/first") {
		t.Fatalf("an allowed page: %d %s\n%s", code, body, first.said())
	}
	if code, body := w.get(t, "198.18.0.16:8080", "evil.test", "/first"); code == 200 {
		t.Fatalf("another name at its address: %d %s", code, body)
	}
	first.kill()

	// The next one opens the same spool, has the same names, and ships what the dead one recorded.
	second := startProcess(t, w, dir)
	if hello := second.equip(t, w, mux, name); len(hello.Names) != 1 || hello.Names[0] != name {
		t.Errorf("its names are %v, they were %v", hello.Names, name)
	}
	shop = &store{}
	control = talk(t, second.supervisor, "control", shop.mux())
	page := func(path, verdict string) func(decisions.Decision) bool {
		return func(d decisions.Decision) bool {
			return d.Layer == "http" && d.Path == path && d.Verdict == verdict
		}
	}
	processtest.Await(t, "the record of the first page", func() bool { return shop.has(page("/first", "allow")) > 0 })
	if n := shop.has(func(d decisions.Decision) bool { return d.Layer == "dns" && d.Host == "good.test" }); n != 1 {
		t.Errorf("the name was recorded %d times", n)
	}
	if err := control.Call(t.Context(), feed.Policies, policy(2, "good.test", "late.test"), nil); err != nil {
		t.Fatal(err)
	}
	if code, body := w.get(t, "198.18.0.16:8080", "good.test", "/second"); code != 200 {
		t.Fatalf("an allowed page, after the kill: %d %s\n%s", code, body, second.said())
	}
	processtest.Await(t, "the record of the second page", func() bool { return shop.has(page("/second", "allow")) > 0 })
	if n := shop.has(page("/first", "allow")); n != 1 {
		t.Errorf("the first page was shipped %d times", n)
	}
	if n := shop.files(); n != 1 {
		t.Errorf("there are %d spools", n)
	}
	if addr := w.lookup(t, "late.test"); addr == name.Addr {
		t.Errorf("%v stands for two names", addr)
	}
}

func (w *town) lookup(t *testing.T, name string) netip.Addr {
	t.Helper()
	c, err := w.dial("udp4", "10.200.0.0:53")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	return addressIn(t, exchange(t, c, name))
}
