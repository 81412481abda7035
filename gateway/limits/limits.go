package limits

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"portreeve.dev/gateway/internal/quantity"
)

// Limits bound one org. Zero is no limit of this author's: of counts the edge then has a default of its own.
type Limits struct {
	ConnectionsPerSandbox     int   `json:"connections_per_sandbox,omitempty" minimum:"0" doc:"Open at once, and requests under way on them."`
	ConnectionsPerOrg         int   `json:"connections_per_org,omitempty" minimum:"0" doc:"Open at once, of all sandboxes together."`
	ConnectionsPerDestination int   `json:"connections_per_destination,omitempty" minimum:"0" doc:"Open at once, of all sandboxes together, to one host and port."`
	NewConnectionsPerSecond   int   `json:"new_connections_per_second,omitempty" minimum:"0" doc:"Begun by one sandbox, over time; twice as many at once."`
	SandboxInPerSecond        int64 `json:"sandbox_bytes_in_per_second,omitempty" minimum:"0" doc:"To one sandbox."`
	SandboxOutPerSecond       int64 `json:"sandbox_bytes_out_per_second,omitempty" minimum:"0" doc:"From one sandbox."`
	OrgInPerSecond            int64 `json:"org_bytes_in_per_second,omitempty" minimum:"0" doc:"To all sandboxes together."`
	OrgOutPerSecond           int64 `json:"org_bytes_out_per_second,omitempty" minimum:"0" doc:"From all sandboxes together."`
	MonthlyQuota              int64 `json:"monthly_quota_bytes,omitempty" minimum:"0" doc:"Both ways together, in a calendar month of UTC."`
}

// A field is one limit of two Limits.
type field struct {
	name  string
	bytes bool // a quantity like 50Mi
	get   func(*Limits) int64
	set   func(*Limits, int64)
}

func count(name string, at func(*Limits) *int) field {
	return field{name, false, func(l *Limits) int64 { return int64(*at(l)) }, func(l *Limits, n int64) { *at(l) = int(n) }}
}

func bytes(name string, at func(*Limits) *int64) field {
	return field{name, true, func(l *Limits) int64 { return *at(l) }, func(l *Limits, n int64) { *at(l) = n }}
}

var fields = []field{
	count("connections_per_sandbox", func(l *Limits) *int { return &l.ConnectionsPerSandbox }),
	count("connections_per_org", func(l *Limits) *int { return &l.ConnectionsPerOrg }),
	count("connections_per_destination", func(l *Limits) *int { return &l.ConnectionsPerDestination }),
	count("new_connections_per_second", func(l *Limits) *int { return &l.NewConnectionsPerSecond }),
	bytes("sandbox_bytes_in_per_second", func(l *Limits) *int64 { return &l.SandboxInPerSecond }),
	bytes("sandbox_bytes_out_per_second", func(l *Limits) *int64 { return &l.SandboxOutPerSecond }),
	bytes("org_bytes_in_per_second", func(l *Limits) *int64 { return &l.OrgInPerSecond }),
	bytes("org_bytes_out_per_second", func(l *Limits) *int64 { return &l.OrgOutPerSecond }),
	bytes("monthly_quota_bytes", func(l *Limits) *int64 { return &l.MonthlyQuota }),
}

// Lowered is the platform's limits where the org's own are none or higher, and the org's own elsewhere.
func (l Limits) Lowered(own Limits) Limits {
	for _, f := range fields {
		if n := f.get(&own); n > 0 && (f.get(&l) == 0 || n < f.get(&l)) {
			f.set(&l, n)
		}
	}
	return l
}

// Above names the fields of own that are above the platform's.
func (l Limits) Above(own Limits) (names []string) {
	for _, f := range fields {
		if most := f.get(&l); most > 0 && f.get(&own) > most {
			names = append(names, f.name)
		}
	}
	return names
}

// A State is how an org stands with its quota.
type State string

const (
	OK      State = "ok"
	Warning State = "warning"   // 80 % are used
	Used    State = "exhausted" // all of it is: connections are refused until the month ends
)

// StateOf says how an org stands that moved so many bytes under a quota; without one it is always well.
func StateOf(quota, used int64) State {
	switch {
	case quota <= 0:
		return OK
	case used >= quota:
		return Used
	case used >= quota-quota/5:
		return Warning
	}
	return OK
}

// Names are those of all limits, as the API spells them.
func Names() (names []string) {
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}

// Get is the limit of that name; 0 is none, and so is one of no name.
func (l Limits) Get(name string) int64 {
	for _, f := range fields {
		if f.name == name {
			return f.get(&l)
		}
	}
	return 0
}

// Set reads a limit as people write it: a number, or for bytes a quantity like 50Mi. Its error names the field and what it takes.
func (l *Limits) Set(name, text string) error {
	i := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
	if i < 0 {
		return fmt.Errorf("%q is no limit; there are %s", name, strings.Join(Names(), ", "))
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err == nil && n >= 0 {
		fields[i].set(l, n)
		return nil
	}
	if !fields[i].bytes {
		return fmt.Errorf("%s: %q is not a number from 0 on", name, text)
	}
	n, ok := quantity.Bytes(text)
	if !ok {
		return fmt.Errorf("%s: %q is not a quantity of bytes like 50Mi, nor 0", name, text)
	}
	fields[i].set(l, n)
	return nil
}
