package policies

// verdict joins what the layers say: as it holds, and, where a layer only watches, as it would be.
func (e *evaluation) verdict(v *Verdict) {
	would := e.join(0)
	if !e.s.observes {
		e.describe(would, v)
		return
	}
	watching := layerSet(0)
	for i := range e.s.layers {
		if e.s.layers[i].observeUntil > e.now.allow {
			watching |= 1 << i
		}
	}
	holds := e.join(watching)
	e.describe(holds, v)
	if holds.protocols != 0 && would.protocols == 0 {
		denial := e.denial(would)
		v.Reason, v.Rule, v.Layer, v.Version, v.Message = denial.Reason, denial.Rule, denial.Layer, denial.Version, denial.Message
		v.Observed, v.Named = true, false
	}
}

// A layerSet has a bit for each layer.
type layerSet uint8

// outcome is what all layers together let through, and if that is nothing, who is to be named for it.
type outcome struct {
	protocols Protocol
	deniedBy  int // layer with the deny rule, or -1
	missingIn int // first layer that allows nothing that those before it do
}

// join asks every layer but the skipped ones.
func (e *evaluation) join(skip layerSet) outcome {
	allow, deny := e.mask, Protocol(0)
	o := outcome{deniedBy: -1, missingIn: -1}
	for i := range len(e.s.layers) {
		if skip&(1<<i) != 0 {
			continue
		}
		st := &e.states[i]
		if st.deny&e.mask != 0 && o.deniedBy < 0 {
			o.deniedBy = i
		}
		deny |= st.deny
		if allow &= st.allow; allow == 0 && o.missingIn < 0 {
			o.missingIn = i
		}
	}
	o.protocols = allow &^ deny
	// A deny rule is the reason if it covers all that was asked for, or took away the last of what was allowed.
	if o.protocols == 0 && allow == 0 && deny&e.mask != e.mask {
		o.deniedBy = -1
	}
	return o
}

// describe fills in v, which has to be zero; in place, as a verdict is large.
func (e *evaluation) describe(o outcome, v *Verdict) {
	if o.protocols == 0 {
		*v = e.denial(o)
		return
	}
	v.Action, v.Reason, v.Named = Allow, ReasonAllowed, true
	if e.r.Stage != StageName {
		v.Protocols = o.protocols
	}
	said := noOpinions
	for i := range e.s.layers {
		st := &e.states[i]
		if st.inspect || st.tls == Inspect {
			v.TLS = Inspect
		}
		v.Inside = v.Inside || st.looked || st.best != 0 && !st.plain
		if st.best == 0 {
			v.Named = false // it only watches
			continue
		}
		c := &e.s.rules[st.best-1]
		v.Rule, v.Layer, v.Version = c.id, e.s.layers[i].Name, e.s.layers[i].Version
		v.Named = v.Named && c.named
		said = said.and(c.opinions)
	}
	if o.protocols&HTTPS == 0 {
		v.TLS = Pass
	}
	said.into(v)
}

func (e *evaluation) denial(o outcome) Verdict {
	if o.deniedBy >= 0 {
		l := &e.s.layers[o.deniedBy]
		c := &e.s.rules[e.states[o.deniedBy].worst-1]
		v := Verdict{Reason: ReasonRuleDenied, Rule: c.id, Layer: l.Name, Version: l.Version, Message: c.source.Message}
		opinions{noOpinion, noOpinion, c.opinions.log}.into(&v)
		return v
	}
	l := &e.s.layers[max(o.missingIn, 0)]
	return Verdict{Reason: ReasonNoRule, Layer: l.Name, Version: l.Version, Requestable: Requestable(ReasonNoRule, e.r.Host)}
}
