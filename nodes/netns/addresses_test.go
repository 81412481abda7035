package netns

import (
	"errors"
	"net/netip"
	"testing"
	"time"
)

type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func newAddresses(t *testing.T, prefix string) (*Addresses, *clock) {
	t.Helper()
	c := &clock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	a, err := NewAddresses(AddressesConfig{Prefix: netip.MustParsePrefix(prefix), Now: c.Now})
	if err != nil {
		t.Fatal(err)
	}
	return a, c
}

func reserve(t *testing.T, a *Addresses) netip.Addr {
	t.Helper()
	addr, err := a.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

func TestReleasedPairWaitsOutItsQuarantine(t *testing.T) {
	a, c := newAddresses(t, "10.200.0.0/30") // two pairs
	one, two := reserve(t, a), reserve(t, a)
	if one.String() != "10.200.0.1" || two.String() != "10.200.0.3" {
		t.Fatalf("got %v and %v", one, two)
	}
	if err := a.Release(one); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(120*time.Second - time.Nanosecond)
	if addr, err := a.Reserve(); !errors.Is(err, ErrNoAddress) {
		t.Errorf("%v was given out after less than its quarantine (%v)", addr, err)
	}
	c.now = c.now.Add(time.Nanosecond)
	if got := reserve(t, a); got != one {
		t.Errorf("got %v, want %v", got, one)
	}
}

func TestQuarantineOfAClockAheadEnds(t *testing.T) {
	a, c := newAddresses(t, "10.200.0.0/31")
	addr := netip.MustParseAddr("10.200.0.1")
	a.Rest(map[netip.Addr]time.Time{addr: c.now.AddDate(1, 0, 0)})
	if got, err := a.Reserve(); !errors.Is(err, ErrNoAddress) {
		t.Errorf("%v was given out at once (%v)", got, err)
	}
	c.now = c.now.Add(120 * time.Second)
	if got := reserve(t, a); got != addr {
		t.Errorf("got %v, want %v", got, addr)
	}
}

func TestQuarantineAndHoldsOutliveARestart(t *testing.T) {
	a, c := newAddresses(t, "10.200.0.0/29") // four pairs
	first, second := reserve(t, a), reserve(t, a)
	if err := a.Release(second); err != nil {
		t.Fatal(err)
	}
	b, _ := newAddresses(t, "10.200.0.0/29")
	b.now = c.Now
	if err := b.Hold(first); err != nil {
		t.Fatal(err)
	}
	b.Rest(a.Released())
	got := []netip.Addr{reserve(t, b), reserve(t, b)}
	if got[0].String() != "10.200.0.5" || got[1].String() != "10.200.0.7" {
		t.Errorf("got %v: held or resting ones are among them", got)
	}
	if err := b.Hold(first); err == nil {
		t.Error("held twice")
	}
	if err := b.Hold(second); err != nil {
		t.Errorf("the same sandbox's own pair: %v", err)
	}
	c.now = c.now.Add(time.Hour)
	if left := a.Released(); len(left) != 0 {
		t.Errorf("still resting after an hour: %v", left)
	}
}

func TestReleasedPairsComeLast(t *testing.T) {
	a, c := newAddresses(t, "10.200.0.0/29")
	first := reserve(t, a)
	if err := a.Release(first); err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(time.Hour)
	for range 3 {
		if got := reserve(t, a); got == first {
			t.Error("used again while others were unused")
		}
	}
	if got := reserve(t, a); got != first {
		t.Errorf("got %v", got)
	}
}

func TestAddressesRefuse(t *testing.T) {
	a, _ := newAddresses(t, "10.200.0.0/16")
	for _, s := range []string{"10.200.0.2", "10.201.0.1", "::1"} {
		if err := a.Hold(netip.MustParseAddr(s)); err == nil {
			t.Errorf("held %s", s)
		}
	}
	if err := a.Release(netip.MustParseAddr("10.200.0.1")); err == nil {
		t.Error("released what nobody held")
	}
	for _, s := range []string{"fd00::/64", "10.0.0.0/32", "0.0.0.0/0"} {
		if _, err := NewAddresses(AddressesConfig{Prefix: netip.MustParsePrefix(s)}); err == nil {
			t.Errorf("took %s", s)
		}
	}
}
