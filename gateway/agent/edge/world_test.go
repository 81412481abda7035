package edge

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
)

// patience is how long a test waits for what should take milliseconds.
const patience = processtest.Patience

const (
	org = "org_a"
	sbx = "sbx_a"
)

// boxA is a sandbox that has a loopback address.
var boxA = egress.Binding{Sandbox: sbx, Org: org, Incarnation: 1, Generation: 1, Addr: netip.MustParseAddr("127.0.1.1"), MinRevision: 1}

// startMessage is what the supervisor would say.
func startMessage(dir string) role.EdgeStart {
	return role.EdgeStart{Dir: dir, UpstreamDNS: []string{"203.0.113.53:53"}, Synthetic: netip.MustParsePrefix("198.18.0.0/15"),
		Limits: role.EdgeLimits{Connections: 100, Names: 100}}
}

// policy is a state that allows the hosts to the sandbox.
func policy(revision uint64, hosts ...string) feed.State {
	type rule struct {
		ID        string   `json:"id"`
		Action    string   `json:"action"`
		Hosts     []string `json:"hosts"`
		Ports     []int    `json:"ports"`
		Protocols []string `json:"protocols"`
	}
	document := struct {
		Rules []rule `json:"rules"`
	}{Rules: []rule{}}
	for _, h := range hosts {
		document.Rules = append(document.Rules, rule{h, "allow", []string{h}, []int{443, 8080}, []string{"http", "https", "tcp"}})
	}
	text, _ := json.Marshal(document)
	return feed.State{Revision: revision, Orgs: []feed.Org{{ID: org, Records: feed.Records{Paths: feed.PathsFull}, Ceiling: feed.Policy{Version: 1, Document: text}}},
		Sandboxes: []feed.Sandbox{{ID: sbx, Org: org}}, Exempt: []feed.Exemption{{CIDR: "203.0.113.0/24", Orgs: []string{"*"}}}}
}

// A world is an edge in this process, outside of any cage, with its supervisor.
type world struct {
	*Edge
	supervisor *link.Conn
	clock      atomic.Int64 // what the feed takes for the time since boot
}

func newWorld(t *testing.T, change ...func(*role.EdgeStart)) *world {
	t.Helper()
	w := &world{Edge: newEdge(slog.New(slog.DiscardHandler))}
	ctx, cancel := context.WithCancel(context.Background())
	w.fail = cancel
	start := startMessage(t.TempDir())
	for _, f := range change {
		f(&start)
	}
	if err := w.build(start); err != nil {
		t.Fatal(err)
	}
	w.clock.Store(int64(time.Hour))
	w.holder.SetClockForTest(func() time.Duration { return time.Duration(w.clock.Load()) })
	mine, theirs := processtest.Pair(t)
	w.supervisor = link.NewConn(mine, nil, link.Limits{})
	go w.supervisor.Run(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- child.RunOn(ctx, theirs, child.Spec{Stop: w.stop, Siblings: map[string]*child.Sibling{"node": w.node, "control": w.control}})
	}()
	t.Cleanup(func() {
		if err := w.supervisor.Call(context.Background(), "stop", struct{}{}, nil); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		w.supervisor.Close()
		<-ended
		cancel()
		w.finish()
		w.spool.Close()
	})
	return w
}

// meet introduces the edge to a sibling and returns the sibling's raw end.
func meet(t *testing.T, supervisor *link.Conn, name string) *net.UnixConn {
	t.Helper()
	a, b, err := link.Pair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := supervisor.Notify("peer", child.Peer{Name: name}, b); err != nil {
		t.Fatal(err)
	}
	mine, err := link.Socket(a)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mine.Close() })
	return mine
}

// talk is meet with a sibling that answers and asks.
func talk(t *testing.T, supervisor *link.Conn, name string, mux *link.Mux) *link.Conn {
	t.Helper()
	conn := link.NewConn(meet(t, supervisor, name), mux, link.Limits{})
	go conn.Run(context.Background())
	return conn
}

// A set is the three sockets that the node would hand over, of loopback, and their addresses.
type set struct {
	files           []*os.File // TCP, UDP for DNS, TCP for DNS
	proxy, udp, tcp string
}

func newSet(t *testing.T) *set {
	t.Helper()
	s, err := listenAt("127.0.0.1:0", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	return s
}

func (s *set) close() {
	for _, f := range s.files {
		f.Close()
	}
}

// listenAt makes a set. Only the files are left of it.
func listenAt(proxy, resolver string) (*set, error) {
	p, err := net.Listen("tcp4", proxy)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	pktinfo := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_PKTINFO, 1) })
		return err
	}}
	u, err := pktinfo.ListenPacket(context.Background(), "udp4", resolver)
	if err != nil {
		return nil, err
	}
	defer u.Close()
	d, err := net.Listen("tcp4", resolver)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	s := &set{proxy: p.Addr().String(), udp: u.LocalAddr().String(), tcp: d.Addr().String()}
	for _, l := range []interface{ File() (*os.File, error) }{p.(*net.TCPListener), u.(*net.UDPConn), d.(*net.TCPListener)} {
		f, err := l.File()
		if err != nil {
			return nil, err
		}
		s.files = append(s.files, f)
	}
	return s, nil
}

// dialFrom connects with the address of a sandbox.
func dialFrom(b egress.Binding) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: b.Addr.AsSlice()}, Timeout: patience}
}

// lookup asks for the address of a name over TCP, as the sandbox.
func lookup(t *testing.T, server string, b egress.Binding, name string) *dns.Msg {
	t.Helper()
	c, err := dialFrom(b).Dial("tcp4", server)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return exchange(t, c, name)
}

func exchange(t *testing.T, c net.Conn, name string) *dns.Msg {
	t.Helper()
	c.SetDeadline(time.Now().Add(patience))
	conn := &dns.Conn{Conn: c}
	q := new(dns.Msg).SetQuestion(name+".", dns.TypeA)
	if err := conn.WriteMsg(q); err != nil {
		t.Fatal(err)
	}
	r, err := conn.ReadMsg()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// addressIn is the one address in an answer.
func addressIn(t *testing.T, r *dns.Msg) netip.Addr {
	t.Helper()
	if len(r.Answer) != 1 {
		t.Fatalf("no address in %v", r)
	}
	a, _ := netip.AddrFromSlice(r.Answer[0].(*dns.A).A.To4())
	return a
}
