package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"portreeve.dev/policies"
	"portreeve.dev/policies/hostname"
)

// A Target is where to connect: Host, or Addr if Host is empty.
type Target struct {
	Org  string // whose floor exemptions, cache and budget
	Host string // in normal form
	Addr netip.Addr
	Port uint16
	// Pin, if set beside Host, is the only address that is tried: one that Host had when it was looked up for the sandbox. It is judged
	// as any other.
	Pin netip.Addr

	// Named is the policy verdict's: its rules name this target. Only then may an exemption of the floor be used.
	Named bool

	// Address, if set, is asked about each address before it is used, beside the floor: a deny rule on a range holds under
	// every name. Alias, if set, is asked about each name that Host is an alias of; a denial refuses the dial.
	Address func(netip.Addr) policies.Verdict
	Alias   func(name string) policies.Verdict
}

func (t Target) String() string {
	if t.Host != "" {
		return t.Host
	}
	return t.Addr.String()
}

// A Result says what was done. Addr belongs to the connection returned, or to the last address tried.
type Result struct {
	Addr  netip.Addr
	Tries int // connection attempts
}

// A Dialer is safe for concurrent use.
type Dialer struct {
	cfg    Config
	client *client
	floor  atomic.Pointer[policies.Floor]
	ways   atomic.Pointer[map[string]Way] // by org

	// The floor's Judge, except in tests of this package, which need loopback.
	judge       func(org string, addr netip.Addr, port uint16) policies.Verdict
	judgeAnswer func(org string, addr netip.Addr) policies.Verdict
	own         func(netip.Addr) bool // asked first; a function for the same tests
}

// New makes a dialer under a floor; under none it refuses everything.
func New(cfg Config, floor *policies.Floor) (*Dialer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Dialer{cfg: cfg}
	if d.client, err = newClient(cfg); err != nil {
		return nil, err
	}
	d.floor.Store(floor)
	d.own = own
	d.judge = func(org string, addr netip.Addr, port uint16) policies.Verdict {
		if d.own(addr) {
			return policies.Verdict{Reason: policies.ReasonFloorHard, Layer: policies.FloorLayer}
		}
		return d.current().Judge(org, addr, port)
	}
	d.judgeAnswer = func(org string, addr netip.Addr) policies.Verdict {
		v := d.current().JudgeAnswer(org, addr)
		if v.Allowed() && d.own(addr) {
			v = policies.Verdict{Reason: policies.ReasonFloorHard, Layer: policies.FloorLayer}
		}
		return v
	}
	return d, nil
}

// SetFloor switches the floor for all later dials.
func (d *Dialer) SetFloor(f *policies.Floor) { d.floor.Store(f) }

// current is the floor as it is at this moment: an exemption may have ended since it was set.
func (d *Dialer) current() *policies.Floor { return d.floor.Load().At(d.cfg.Now()) }

// Dial connects to t. The error is a *Refused when that was decided, else an *Error.
func (d *Dialer) Dial(ctx context.Context, t Target) (net.Conn, Result, error) {
	var res Result
	if t.Org == "" || t.Port == 0 {
		return nil, res, &Error{Kind: DialFailed, Host: t.String(), Err: errors.New("org and port are needed")}
	}
	addrs, err := d.addresses(ctx, t)
	if err != nil {
		return nil, res, err
	}
	allowed, err := d.allowed(t, addrs)
	if err != nil {
		return nil, res, err
	}
	c, err := d.first(ctx, t, allowed, &res)
	return c, res, err
}

// addresses are those to judge, looked up if the target is a name.
func (d *Dialer) addresses(ctx context.Context, t Target) ([]netip.Addr, error) {
	if t.Host == "" {
		return []netip.Addr{t.Addr}, nil
	}
	if normal, err := hostname.Normalize(t.Host); err != nil || normal != t.Host {
		return nil, &Refused{Verdict: policies.Denied(policies.ReasonHostInvalid), Name: t.Host}
	}
	if v := d.floor.Load().JudgeHost(t.Host); !v.Allowed() {
		return nil, &Refused{Verdict: v, Name: t.Host}
	}
	if t.Pin.IsValid() {
		return []netip.Addr{t.Pin}, nil
	}
	a, err := d.lookup(ctx, t)
	return a.addrs, err
}

// lookup asks for t's addresses and judges the names on the way to them.
func (d *Dialer) lookup(ctx context.Context, t Target) (answer, error) {
	a, err := d.client.lookup(ctx, t.Org, t.Host)
	if err != nil {
		return answer{}, err
	}
	for _, name := range a.aliases {
		if v := d.floor.Load().JudgeHost(name); !v.Allowed() {
			return answer{}, &Refused{Verdict: v, Name: name}
		}
		if t.Alias == nil {
			continue
		}
		if v := t.Alias(name); !v.Allowed() {
			return answer{}, &Refused{Verdict: v, Name: name}
		}
	}
	if a.kind != "" {
		return answer{}, &Error{Kind: a.kind, Host: t.Host}
	}
	return a, nil
}

// allowed keeps the addresses that may be used, in order; with none left, the verdict on the first is the answer.
func (d *Dialer) allowed(t Target, addrs []netip.Addr) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	var refused *Refused
	for _, a := range addrs {
		a = a.Unmap() // the kernel would do the same: ::ffff:127.0.0.1 is 127.0.0.1
		if v := d.verdict(t, a); v.Allowed() {
			out = append(out, netip.AddrPortFrom(a, t.Port))
		} else if refused == nil {
			refused = &Refused{Verdict: v, Addr: a}
		}
	}
	switch {
	case refused != nil && (len(out) == 0 || d.choosesItself(t)):
		return nil, refused
	case len(out) > 0:
		return out, nil
	}
	return nil, &Error{Kind: NoAddress, Host: t.String()}
}

// choosesItself reports whether t's proxy is told the name only: then it may choose any address that the name has.
func (d *Dialer) choosesItself(t Target) bool {
	u := d.upstream(t.Org)
	return u != nil && u.ByName && t.Host != ""
}

// verdict is the floor's on one address, and the policy's on its range.
func (d *Dialer) verdict(t Target, a netip.Addr) policies.Verdict {
	if !a.IsValid() || a.Zone() != "" {
		return policies.Denied(policies.ReasonFloorHard)
	}
	v := d.judge(t.Org, a, t.Port)
	switch {
	case !v.Allowed():
		return v
	case v.Named && !t.Named:
		return policies.NotNamed(a)
	case t.Address != nil:
		return t.Address(a)
	}
	return v
}

// first connects to the first address that answers.
func (d *Dialer) first(ctx context.Context, t Target, addrs []netip.AddrPort, res *Result) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.cfg.ConnectTimeout)
	defer cancel()
	check := func(a netip.AddrPort) error {
		if v := d.verdict(t, a.Addr()); !v.Allowed() {
			return &Refused{Verdict: v, Addr: a.Addr()} // the floor changed since
		}
		return nil
	}
	var last error
	for i, a := range addrs {
		res.Addr = a.Addr()
		res.Tries++
		try, stop := context.WithTimeout(ctx, share(ctx, len(addrs)-i))
		c, err := d.open(try, t, a, check)
		stop()
		if err == nil {
			return c, nil
		}
		last = err
		if ctx.Err() != nil || d.choosesItself(t) || proxyFault(err) {
			break
		}
	}
	var r *Refused
	if errors.As(last, &r) {
		return nil, r
	}
	return nil, &Error{Kind: connectKind(ctx, last), Host: t.String(), Err: last}
}

// sameRemote is the last belt: the kernel's own word on where the connection leads.
func sameRemote(c net.Conn, want netip.AddrPort) error {
	got, ok := c.RemoteAddr().(*net.TCPAddr)
	if ok && got.AddrPort().Port() == want.Port() && got.AddrPort().Addr().Unmap() == want.Addr() {
		return nil
	}
	c.Close()
	return fmt.Errorf("connected to %v, judged was %v", c.RemoteAddr(), want)
}
