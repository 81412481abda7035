package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/decisions"
	"portreeve.dev/egress/egresstest"
	"portreeve.dev/policies"
	"portreeve.dev/secrets"
)

// Pinned says that a name given as "a.test b.test" stands for two.
func (n names) Pinned(sandbox string, incarnation uint64, a netip.Addr, _ time.Time) []string {
	if name, ok := n[a]; ok && sandbox == testSandbox && incarnation == 1 {
		return strings.Fields(name)
	}
	return nil
}

type names map[netip.Addr]string

func (n names) InRange(a netip.Addr) bool { return synthetic.Contains(a) }
func (n names) Name(sandbox string, incarnation uint64, a netip.Addr) (string, bool) {
	name, ok := n[a]
	return name, ok && sandbox == testSandbox && incarnation == 1
}

// recorder keeps decisions in memory; err fails the writing.
type recorder struct {
	mu      sync.Mutex
	list    []decisions.Decision
	closed  map[string]Closing
	err     error
	changed chan struct{} // closed and renewed at each change
}

func (r *recorder) Record(_ context.Context, d *decisions.Decision) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	r.list = append(r.list, *d)
	r.notify()
	return nil
}

func (r *recorder) Close(_ context.Context, id string, end Closing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, twice := r.closed[id]; twice {
		panic("closed twice: " + id)
	}
	r.closed[id] = end
	r.notify()
}

func (r *recorder) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// wait returns the decisions once there are n of them, each allowed one closed if ended.
func (w *world) decisions(n int, ended bool) []decisions.Decision {
	w.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		w.recorder.mu.Lock()
		list, changed := slices.Clone(w.recorder.list), w.recorder.changed
		ready := len(list) >= n
		for _, d := range list {
			if _, ok := w.recorder.closed[d.ID]; ended && !ok && d.Verdict == "allow" {
				ready = false
			}
		}
		w.recorder.mu.Unlock()
		if ready {
			if len(list) != n {
				w.t.Fatalf("%d decisions, want %d: %+v", len(list), n, list)
			}
			return list
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("%d decisions after 10 s, want %d: %+v", len(list), n, list)
		}
	}
}

// decided returns the one decision there is, and how it ended.
func (w *world) decided() (decisions.Decision, Closing) {
	w.t.Helper()
	d := w.decisions(1, true)[0]
	w.recorder.mu.Lock()
	defer w.recorder.mu.Unlock()
	return d, w.recorder.closed[d.ID]
}

// ended returns the end of a decision once it has one.
func (w *world) ended(id string) Closing {
	w.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		w.recorder.mu.Lock()
		end, ok := w.recorder.closed[id]
		changed := w.recorder.changed
		w.recorder.mu.Unlock()
		if ok {
			return end
		}
		select {
		case <-changed:
		case <-deadline:
			w.t.Fatalf("decision %s has no end", id)
		}
	}
}

// dialer connects names to servers of the test, after asking what a real one asks.
type dialer struct {
	mu        sync.Mutex
	upstreams map[string]string // host:port to the real address
	failing   map[string]error
	addrs     map[string]netip.Addr // what a name resolves to; 203.0.113.1 if not here
	dialled   []string
	recorder  *recorder
	recorded  []int // how many decisions there were at each dial
	limit     func() (give func(), err error)
}

func (d *dialer) serve(host string, port uint16, addr string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.upstreams[fmt.Sprintf("%s:%d", host, port)] = addr
}

func (d *dialer) Dial(ctx context.Context, t Target) (net.Conn, netip.Addr, error) {
	host := t.Host
	if host == "" {
		host = t.Addr.String()
	}
	key := fmt.Sprintf("%s:%d", host, t.Port)
	d.mu.Lock()
	d.dialled = append(d.dialled, key)
	to, ok, err := d.upstreams[key], true, d.failing[key]
	if to == "" {
		ok = false
	}
	addr, known := d.addrs[host]
	if d.recorder != nil {
		d.recorder.mu.Lock()
		d.recorded = append(d.recorded, len(d.recorder.list))
		d.recorder.mu.Unlock()
	}
	d.mu.Unlock()
	switch {
	case t.Host == "":
		addr = t.Addr
	case t.Pin.IsValid():
		addr = t.Pin
	case !known:
		addr = netip.MustParseAddr("203.0.113.1")
	}
	if err != nil {
		return nil, addr, err
	}
	if v := t.Address(addr); !v.Allowed() {
		return nil, addr, &RefusedError{Verdict: v, Addr: addr}
	}
	if !ok {
		return nil, netip.Addr{}, &DialError{Kind: "resolve_nxdomain", Resolving: true}
	}
	var nd net.Dialer
	nc, err := nd.DialContext(ctx, "tcp4", to)
	if err != nil {
		return nil, addr, &DialError{Kind: "dial_refused", Err: err}
	}
	if d.limit == nil {
		return nc, addr, nil
	}
	give, err := d.limit()
	if err != nil {
		nc.Close()
		return nil, addr, err
	}
	return &givingConn{nc, sync.OnceFunc(give)}, addr, nil
}

func (d *dialer) dials() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.dialled)
}

// flowTable holds flows up to a limit and can re-judge them.
type flowTable struct {
	mu    sync.Mutex
	live  map[string]Flow
	limit int
	empty chan struct{}   // closed when nothing is live, made by check
	gone  map[string]bool // secrets that are no longer granted
	full  error           // met by all but local flows
	last  error           // met by what has reached its address
}

var errFull = errors.New("too many flows")

func (f *flowTable) Add(flow Flow) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.limit > 0 && flow.Parent == "" && len(f.live) >= f.limit {
		return nil, errFull
	}
	if f.full != nil && flow.Parent == "" && !flow.Local {
		return nil, f.full
	}
	if f.last != nil && flow.Remote.IsValid() {
		return nil, f.last
	}
	f.live[flow.ID] = flow
	var once sync.Once
	return func() {
		once.Do(func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.live, flow.ID)
			if len(f.live) == 0 && f.empty != nil {
				close(f.empty)
				f.empty = nil
			}
		})
	}, nil
}

// rejudge kills what the snapshot no longer allows.
func (f *flowTable) rejudge(s *policies.Snapshot) {
	f.mu.Lock()
	var gone []Flow
	for _, flow := range f.live {
		carries := slices.ContainsFunc(flow.Secrets, func(u decisions.Use) bool { return f.gone[u.Secret] })
		if r := flow.Request; !flow.Local && (carries || !s.Evaluate(&r).Allowed()) {
			gone = append(gone, flow)
		}
	}
	f.mu.Unlock()
	for _, flow := range gone {
		flow.Kill(policies.ReasonRevoked)
	}
}

// check waits until nothing is live: the transports close what was under way on goroutines of their own.
func (f *flowTable) check(t testing.TB) {
	f.mu.Lock()
	empty := make(chan struct{})
	if len(f.live) == 0 {
		close(empty)
	} else {
		f.empty = empty
	}
	f.mu.Unlock()
	select {
	case <-empty:
	case <-time.After(10 * time.Second):
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, flow := range f.live {
			t.Errorf("a flow was never removed: %+v", flow.Request)
		}
	}
}

// tighten changes the policy as the edge does: the new snapshot first, then the live flows.
func (w *world) tighten(rules string) {
	w.t.Helper()
	w.policies.Set(w.t, rules)
	s, _, _ := w.policies.Snapshot(egress.Binding{})
	w.flows.rejudge(s)
}

// An authority signs leaves: the org's for opened connections, the real one for upstreams. err fails the former.
type authority struct {
	*egresstest.CA

	mu     sync.Mutex
	leaves map[string]*tls.Certificate
	err    error
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	return &authority{CA: egresstest.NewCA(t), leaves: make(map[string]*tls.Certificate)}
}

func (a *authority) pool() *x509.CertPool { return a.Pool() }

func (a *authority) leaf(t testing.TB, host string) *tls.Certificate {
	t.Helper()
	return a.CA.Leaf(t, host)
}

func (a *authority) Leaf(_ context.Context, org, host string) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return nil, a.err
	}
	if leaf, ok := a.leaves[host]; ok {
		return leaf, nil
	}
	leaf, err := a.Sign(host)
	a.leaves[host] = leaf
	return leaf, err
}

// injector sets one header on one host; err fails it.
type injector struct {
	host, value string
	scrub       *secrets.Scrubber
	err         error
	version     atomic.Int64 // of the secret, less one
}

func (i *injector) Current(_ egress.Binding, host string, _ uint16, u decisions.Use) bool {
	return host == i.host && u.Version == i.version.Load()+1
}

func (i *injector) Granted(_ egress.Binding, host string) bool { return host == i.host }

func (i *injector) Apply(_ context.Context, _ egress.Binding, to Place, r *http.Request) (Injection, error) {
	if i.err != nil {
		return Injection{}, i.err
	}
	if to.Withhold || !strings.HasPrefix(r.URL.RequestURI(), "/v1/") {
		return Injection{Scrub: i.scrub}, nil
	}
	r.Header.Set("Authorization", i.value)
	return Injection{[]decisions.Use{{Secret: "sec_1", Version: i.version.Load() + 1, Place: "header:authorization"}}, i.scrub}, nil
}

// A givingConn tells when it is closed.
type givingConn struct {
	net.Conn
	give func()
}

func (c *givingConn) Close() error      { defer c.give(); return c.Conn.Close() }
func (c *givingConn) NetConn() net.Conn { return c.Conn }
