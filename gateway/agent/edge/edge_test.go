package edge

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"portreeve.dev/egress/proxy"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/processtest"
	"portreeve.dev/gateway/role"
	"portreeve.dev/policies"
)

func TestSocketsAreRefusedOutsideTheCage(t *testing.T) {
	w := newWorld(t)
	node := talk(t, w.supervisor, "node", nil)
	if err := w.bindings.Bind(boxA); err != nil {
		t.Fatal(err)
	}
	outside := newSet(t)
	err := node.Call(t.Context(), role.EdgeSockets, struct{}{}, nil, outside.files...)
	if err == nil || !strings.Contains(err.Error(), "not in its cage") {
		t.Fatalf("taking sockets outside of the cage: %v", err)
	}
	outside.close()
	for _, addr := range []string{outside.proxy, outside.tcp} {
		if c, err := net.DialTimeout("tcp4", addr, patience); !errors.Is(err, syscall.ECONNREFUSED) {
			if err == nil {
				c.Close()
			}
			t.Errorf("connecting to a socket that was refused: %v", err)
		}
	}

	w.caged.Store(true)
	inside := newSet(t)
	if err := node.Call(t.Context(), role.EdgeSockets, struct{}{}, nil, inside.files...); err != nil {
		t.Fatalf("the same, inside: %v", err)
	}
	inside.close()
	// Served, and not merely open: there is no policy yet, which the resolver says and the proxy closes for.
	if r := lookup(t, inside.tcp, boxA, "good.test"); r.Rcode != dns.RcodeServerFailure {
		t.Errorf("the resolver says %v", r)
	}
	if err := firstByte(inside.proxy); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the proxy says %v", err)
	}
	if err := node.Call(t.Context(), role.EdgeSockets, struct{}{}, nil, newSet(t).files...); err == nil {
		t.Error("sockets were taken twice")
	}
}

// firstByte is how a connection of the sandbox's ends.
func firstByte(addr string) error {
	c, err := dialFrom(boxA).Dial("tcp4", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	_, err = c.Read(make([]byte, 1))
	return err
}

func TestSocketsThatAreNoneEndTheProcess(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	node := talk(t, w.supervisor, "node", nil)
	s := newSet(t)
	if err := node.Call(t.Context(), role.EdgeSockets, struct{}{}, nil, s.files[0], s.files[2], s.files[2]); err == nil {
		t.Fatal("a TCP socket was taken for one of UDP")
	}
	processtest.Await(t, "the end of the process", func() bool { return w.supervisor.Notify("x", struct{}{}) != nil })
}

func TestStalePolicyEndsFlows(t *testing.T) {
	w := newWorld(t)
	w.caged.Store(true)
	if err := w.serve(newSet(t).files); err != nil {
		t.Fatal(err)
	}
	if err := w.bindings.Bind(boxA); err != nil {
		t.Fatal(err)
	}
	control := talk(t, w.supervisor, "control", nil)
	if err := control.Call(t.Context(), feed.Policies, policy(1, "good.test"), nil); err != nil {
		t.Fatal(err)
	}
	killed := make(chan policies.Reason, 1)
	open := func(id string) {
		t.Helper()
		remove, err := flowTable{w.flows}.Add(proxy.Flow{ID: id, Binding: boxA, Kill: func(r policies.Reason) { killed <- r },
			Request: policies.Request{Stage: policies.StageConnect, Host: "good.test", Port: 443, Protocol: policies.HTTPS}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(remove)
		if n := w.flows.Rejudge(); n != 0 { // it is allowed, so that its end is one
			t.Fatalf("%d flows ended under a fresh policy", n)
		}
	}
	open("flo_1")
	// Just as old as it may be; a heartbeat makes it young again.
	w.clock.Add(int64(feed.FreshFor))
	if n := w.flows.Rejudge(); n != 0 {
		t.Fatalf("%d flows ended at the limit", n)
	}
	if err := control.Call(t.Context(), feed.Beats, feed.Heartbeat{Revision: 1}, nil); err != nil {
		t.Fatal(err)
	}
	w.clock.Add(int64(feed.FreshFor))
	if n := w.flows.Rejudge(); n != 0 {
		t.Fatalf("%d flows ended after a heartbeat", n)
	}
	// Silence, of which nobody tells the edge.
	w.clock.Add(1)
	expect(t, killed, policies.ReasonStalePolicy)

	// And a policy that no longer allows it, when it arrives.
	if err := control.Call(t.Context(), feed.Policies, policy(2, "good.test"), nil); err != nil {
		t.Fatal(err)
	}
	open("flo_2")
	if err := control.Call(t.Context(), feed.Policies, policy(3, "other.test"), nil); err != nil {
		t.Fatal(err)
	}
	select {
	case r := <-killed:
		if r != policies.ReasonRevoked {
			t.Errorf("ended for %s", r)
		}
	default:
		t.Error("alive although the policy that ended it is acknowledged")
	}
}

func expect(t *testing.T, killed <-chan policies.Reason, want policies.Reason) {
	t.Helper()
	select {
	case r := <-killed:
		if r != want {
			t.Errorf("ended for %s, want %s", r, want)
		}
	case <-time.After(patience):
		t.Fatal("the flow is alive")
	}
}

func TestProxyHearsThatAPolicyIsStale(t *testing.T) {
	w := newWorld(t)
	f := fresh{w.holder}
	if _, _, err := f.Snapshot(boxA); err == nil || errors.Is(err, proxy.ErrStalePolicy) {
		t.Errorf("without any policy: %v", err)
	}
	if err := w.holder.Apply(policy(1, "good.test")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.Snapshot(boxA); err != nil {
		t.Errorf("with a fresh one: %v", err)
	}
	newer := boxA
	newer.MinRevision = 2
	if _, _, err := f.Snapshot(newer); !errors.Is(err, proxy.ErrStalePolicy) {
		t.Errorf("with one that is too old for the sandbox: %v", err)
	}
	w.clock.Add(int64(feed.FreshFor) + 1)
	if _, _, err := f.Snapshot(boxA); !errors.Is(err, proxy.ErrStalePolicy) {
		t.Errorf("with a stale one: %v", err)
	}
}
