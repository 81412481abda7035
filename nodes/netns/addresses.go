package netns

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
)

// ErrNoAddress: every pair is reserved or in quarantine.
var ErrNoAddress = errors.New("no address pair is free")

// AddressesConfig configures Addresses.
type AddressesConfig struct {
	Prefix     netip.Prefix     // the pairs' range, default 10.200.0.0/16; no route of the host may overlap it
	Quarantine time.Duration    // how long a released pair rests, default 120 s
	Now        func() time.Time // how long pairs rest goes by it: a line that nobody sets, also where the clock is set; default time.Now
}

// Addresses gives out /31 pairs, named by their sandbox (odd) half. A released pair rests before it is given out
// again, as connections, answers and table entries of the last owner may still name it. It is safe for concurrent use.
type Addresses struct {
	prefix     netip.Prefix
	quarantine time.Duration
	now        func() time.Time

	mu       sync.Mutex
	next     uint32 // pair to try first: released pairs come last
	reserved map[netip.Addr]bool
	released map[netip.Addr]time.Time
}

// NewAddresses returns an allocator in which nothing is reserved.
func NewAddresses(c AddressesConfig) (*Addresses, error) {
	if !c.Prefix.IsValid() {
		c.Prefix = netip.MustParsePrefix("10.200.0.0/16")
	}
	if !c.Prefix.Addr().Is4() || c.Prefix.Bits() > 31 || c.Prefix.Bits() < 8 {
		return nil, fmt.Errorf("address pairs from %v: an IPv4 prefix of /8 to /31 is needed", c.Prefix)
	}
	if c.Quarantine == 0 {
		c.Quarantine = 120 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Addresses{
		prefix: c.Prefix.Masked(), quarantine: c.Quarantine, now: c.Now,
		reserved: make(map[netip.Addr]bool), released: make(map[netip.Addr]time.Time),
	}, nil
}

// Reserve returns the sandbox half of a free pair, or ErrNoAddress.
func (a *Addresses) Reserve() (netip.Addr, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	pairs := uint32(1) << (31 - a.prefix.Bits())
	for range pairs {
		addr := a.sandbox(a.next)
		a.next = (a.next + 1) % pairs
		if a.free(addr) {
			delete(a.released, addr)
			a.reserved[addr] = true
			return addr, nil
		}
	}
	return netip.Addr{}, ErrNoAddress
}

// Hold reserves one particular pair again: that of a sandbox which an earlier process made. Quarantine doesn't
// matter, as it is the same sandbox's.
func (a *Addresses) Hold(sandbox netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.ours(sandbox) {
		return fmt.Errorf("holding %v: not the sandbox half of a pair in %v", sandbox, a.prefix)
	}
	if a.reserved[sandbox] {
		return fmt.Errorf("holding %v: it is held already", sandbox)
	}
	delete(a.released, sandbox)
	a.reserved[sandbox] = true
	return nil
}

// Release begins the quarantine. Call it when everything that used the pair is closed.
func (a *Addresses) Release(sandbox netip.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.reserved[sandbox] {
		return fmt.Errorf("releasing %v: it is not held", sandbox)
	}
	delete(a.reserved, sandbox)
	a.released[sandbox] = a.now()
	return nil
}

// Released returns the pairs in quarantine and since when, to be kept over a restart.
func (a *Addresses) Released() map[netip.Addr]time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := make(map[netip.Addr]time.Time)
	for addr, since := range a.released {
		if a.resting(since) {
			m[addr] = since
		}
	}
	return m
}

// Rest puts pairs that an earlier process released into quarantine. Those that are held stay held; one that was released later than now, by
// a clock that was ahead, counts as released now.
func (a *Addresses) Rest(released map[netip.Addr]time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	for addr, since := range released {
		if since.After(now) {
			since = now
		}
		if a.ours(addr) && !a.reserved[addr] {
			a.released[addr] = since
		}
	}
}

func (a *Addresses) free(addr netip.Addr) bool {
	since, released := a.released[addr]
	return !a.reserved[addr] && !(released && a.resting(since))
}

func (a *Addresses) resting(since time.Time) bool { return a.now().Sub(since) < a.quarantine }

func (a *Addresses) ours(addr netip.Addr) bool {
	return addr.Is4() && a.prefix.Contains(addr) && addr.As4()[3]&1 == 1
}

func (a *Addresses) sandbox(pair uint32) netip.Addr {
	b := a.prefix.Addr().As4()
	n := uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n += pair*2 + 1
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}
