package policies

import "net/netip"

// Evaluate decides about r for org as everything does that may lead a sandbox out: the floor first, about what r goes to by name or by
// address, then the policy. What an exemption opens is open only to rules that name it. It is pure, allocates nothing, and is safe for
// concurrent use. The addresses that a name has are judged when they are dialled.
func (f *Floor) Evaluate(org string, s *Snapshot, r *Request) Verdict {
	if f == nil {
		return floorVerdict(ReasonFloorHard)
	}
	if malformed(r) != "" {
		return s.Evaluate(r)
	}
	under := f.destination(org, r.Host, r.Addr, r.Port)
	if !under.Allowed() {
		return under
	}
	v := s.Evaluate(r)
	if v.Allowed() && under.Named && !v.Named {
		return NotNamed(r.Addr)
	}
	return v
}

// destination decides about a name in normal form, or about an address where there is no name.
func (f *Floor) destination(org, host string, addr netip.Addr, port uint16) Verdict {
	switch {
	case f == nil, closedName(host):
		return floorVerdict(ReasonFloorHard)
	case host != "":
		return Verdict{Action: Allow, Reason: ReasonAllowed, Layer: FloorLayer}
	}
	return f.Judge(org, addr, port)
}

// NotNamed is the floor's denial of an address that only an exemption opens, to a policy that allows it without naming it.
func NotNamed(addr netip.Addr) Verdict {
	if Classify(addr) == Public {
		return floorVerdict(ReasonPort25)
	}
	return floorVerdict(ReasonFloorSoft)
}

// Requestable reports whether access to what was denied may be asked for: what is missing is only a rule, and it is asked for by name.
func Requestable(reason Reason, host string) bool { return reason == ReasonNoRule && host != "" }
