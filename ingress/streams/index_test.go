package streams

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"portreeve.dev/ingress/route"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func record(change ...func(*route.Record)) *route.Record {
	r := &route.Record{
		Host: "a.test", Tunnel: "tun_1", Sandbox: "sbx_1", Org: "org_1", Port: 3000, Generation: 5, State: route.Running, Public: true,
		AuthEpoch: 2, ExpiresAt: time.Now().Add(time.Hour),
	}
	for _, f := range change {
		f(r)
	}
	return r
}

// open opens a stream and returns what tells the reason of its end.
func open(t *testing.T, x *Index, rec *route.Record, generation uint64) func() Reason {
	t.Helper()
	var why atomic.Uint32
	if _, err := x.Open(rec, generation, func(r Reason) { why.Store(uint32(r)) }); err != nil {
		t.Fatal(err)
	}
	return func() Reason { return Reason(why.Load()) }
}

func TestStreamsEndOnExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := New(Config{})
		defer x.Close()
		first := record()
		why := open(t, x, first, 5)
		other := open(t, x, record(func(r *route.Record) { r.Tunnel = "tun_2"; r.ExpiresAt = time.Now().Add(3 * time.Hour) }), 5)
		time.Sleep(time.Hour - 1)
		synctest.Wait()
		if why() != 0 {
			t.Fatalf("ended early: %v", why())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if why() != Expired || other() != 0 {
			t.Errorf("at its end: %v, the other tunnel %v", why(), other())
		}
		if _, err := x.Open(first, 5, func(Reason) {}); !errors.Is(err, ErrEnded) {
			t.Errorf("opened after the end: %v", err)
		}
		later := record(func(r *route.Record) { r.Tunnel = "tun_2"; r.ExpiresAt = time.Now().Add(3 * time.Hour) })
		x.Changed(later)
		time.Sleep(3*time.Hour - 1)
		synctest.Wait()
		if other() != 0 {
			t.Errorf("an extended tunnel ended early: %v", other())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if other() != Expired {
			t.Errorf("an extended tunnel did not end: %v", other())
		}
	})
}

func TestStreamsEndOnEpoch(t *testing.T) {
	x := New(Config{})
	defer x.Close()
	old, public := open(t, x, record(func(r *route.Record) { r.Public = false }), 5), open(t, x, record(), 5)
	x.Changed(record())
	if old() != 0 || public() != 0 {
		t.Fatalf("nothing changed: %v, %v", old(), public())
	}
	x.Changed(record(func(r *route.Record) { r.Public = false }))
	if old() != 0 || public() != Revoked {
		t.Errorf("no longer public: %v, %v", old(), public())
	}
	x.Changed(record(func(r *route.Record) { r.Public, r.AuthEpoch = false, 3 }))
	if old() != Revoked {
		t.Errorf("a new epoch: %v", old())
	}
	now := open(t, x, record(func(r *route.Record) { r.AuthEpoch = 3 }), 5)
	x.Changed(record(func(r *route.Record) { r.AuthEpoch = 3 }))
	if now() != 0 {
		t.Errorf("admitted under the new epoch: %v", now())
	}
}

func TestStreamsEndWithTheirGeneration(t *testing.T) {
	x := New(Config{})
	defer x.Close()
	old, now := open(t, x, record(), 5), open(t, x, record(), 6)
	x.Changed(record(func(r *route.Record) { r.State = route.Paused }))
	if old() != Paused || now() != 0 {
		t.Errorf("paused: %v, and what runs to the woken one %v", old(), now())
	}
	stale := open(t, x, record(), 5)
	x.Changed(record(func(r *route.Record) { r.Generation = 6 }))
	if stale() != Stale || now() != 0 {
		t.Errorf("a new generation: %v, and what runs to it %v", stale(), now())
	}
	x.Changed(record(func(r *route.Record) { r.Generation, r.State = 6, route.Gone }))
	if now() != Deleted || x.Len("tun_1") != 0 || len(x.tunnels) != 0 {
		t.Errorf("deleted: %v", now())
	}
}

func TestStreamsAreBounded(t *testing.T) {
	x := New(Config{Limit: 2})
	defer x.Close()
	s, err := x.Open(record(), 5, func(Reason) {})
	if err != nil {
		t.Fatal(err)
	}
	open(t, x, record(), 5)
	if _, err := x.Open(record(), 5, func(Reason) {}); !errors.Is(err, ErrFull) {
		t.Errorf("one too many: %v", err)
	}
	open(t, x, record(func(r *route.Record) { r.Tunnel = "tun_2" }), 5)
	s.Close()
	open(t, x, record(), 5)
}

func TestCloseEndsAll(t *testing.T) {
	x := New(Config{})
	why := open(t, x, record(), 5)
	x.Close()
	if why() != Shutdown {
		t.Error(why())
	}
	if _, err := x.Open(record(), 5, func(Reason) {}); !errors.Is(err, ErrEnded) {
		t.Error(err)
	}
}

func TestEndBeforeOnEnd(t *testing.T) {
	x := New(Config{})
	defer x.Close()
	s, err := x.Open(record(), 5, func(Reason) {})
	if err != nil {
		t.Fatal(err)
	}
	x.Changed(record(func(r *route.Record) { r.State = route.Gone }))
	var why Reason
	s.OnEnd(func(r Reason) { why = r })
	if why != Deleted {
		t.Errorf("an end that came before is lost: %v", why)
	}
}
