package policies

// opinions are what a rule says about the use of what it allows. The strictest of several holds: the smallest value.
type opinions struct{ foreign, dns, log uint8 }

// noOpinion is larger than every value.
const noOpinion uint8 = 255

var noOpinions = opinions{noOpinion, noOpinion, noOpinion}

func opinionsOf(r *Rule) opinions {
	o := noOpinions
	if r.ForeignCredentials != nil {
		o.foreign = uint8(*r.ForeignCredentials)
	}
	if r.DNS != nil {
		o.dns = uint8(*r.DNS)
	}
	if r.Log != nil {
		o.log = uint8(*r.Log)
	}
	return o
}

// and joins the opinions of two rules that both have to allow.
func (o opinions) and(p opinions) opinions {
	return opinions{min(o.foreign, p.foreign), min(o.dns, p.dns), min(o.log, p.log)}
}

// into writes the opinions to v. Where nobody has one, the strictest value holds, which is each type's zero.
func (o opinions) into(v *Verdict) {
	if o.foreign != noOpinion {
		v.Foreign = ForeignCredentials(o.foreign)
	}
	if o.dns != noOpinion {
		v.DNS = DNSMode(o.dns)
	}
	if o.log != noOpinion {
		v.Log = LogMode(o.log)
	}
}
