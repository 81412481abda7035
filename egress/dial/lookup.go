package dial

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"portreeve.dev/policies"
	"portreeve.dev/policies/hostname"
)

// Lookup finds the addresses of t's host, which may be told to a sandbox: those that floor and rules close are left out, and with none
// left the verdict on the first is the error. The port is not looked at, nor is Addr or Pin. Whoever connects to one of them is judged
// again.
func (d *Dialer) Lookup(ctx context.Context, t Target) (addrs []netip.Addr, ttl time.Duration, err error) {
	if t.Org == "" || t.Host == "" {
		return nil, 0, &Error{Kind: DialFailed, Host: t.String(), Err: errors.New("org and host are needed")}
	}
	if normal, err := hostname.Normalize(t.Host); err != nil || normal != t.Host {
		return nil, 0, &Refused{Verdict: policies.Denied(policies.ReasonHostInvalid), Name: t.Host}
	}
	if v := d.floor.Load().JudgeHost(t.Host); !v.Allowed() {
		return nil, 0, &Refused{Verdict: v, Name: t.Host}
	}
	a, err := d.lookup(ctx, t)
	if err != nil {
		return nil, 0, err
	}
	var refused *Refused
	for _, addr := range a.addrs {
		addr = addr.Unmap()
		if v := d.answerVerdict(t, addr); v.Allowed() {
			addrs = append(addrs, addr)
		} else if refused == nil {
			refused = &Refused{Verdict: v, Addr: addr}
		}
	}
	switch {
	case len(addrs) > 0:
		return addrs, a.ttl, nil
	case refused != nil:
		return nil, 0, refused
	}
	return nil, 0, &Error{Kind: NoAddress, Host: t.Host}
}

// answerVerdict is verdict for an address that no port is known of.
func (d *Dialer) answerVerdict(t Target, a netip.Addr) policies.Verdict {
	if !a.IsValid() || a.Zone() != "" {
		return policies.Denied(policies.ReasonFloorHard)
	}
	v := d.judgeAnswer(t.Org, a)
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
