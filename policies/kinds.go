package policies

import (
	"fmt"
	"strings"
)

// Action is what a rule or a verdict says. The zero value denies.
type Action uint8

const (
	Deny Action = iota
	Allow
)

// TLSMode says whether a TLS connection is opened by the edge or passed through unseen.
type TLSMode uint8

const (
	Pass TLSMode = iota
	Inspect
)

// ForeignCredentials says what happens to credentials that the sandbox itself sends, where the inside of the connection is seen.
// The zero value refuses the request.
type ForeignCredentials uint8

const (
	ForeignBlock ForeignCredentials = iota
	ForeignStrip
	ForeignAllow
)

// DNSMode says what the resolver answers for an allowed name: a synthetic address, or the real ones, pinned.
type DNSMode uint8

const (
	DNSSynthetic DNSMode = iota
	DNSReal
)

// LogMode says whether each decision of a rule is recorded, or only counted.
type LogMode uint8

const (
	LogFull LogMode = iota
	LogCount
)

// FailureMode says what holds once a snapshot is no longer fresh.
type FailureMode uint8

const (
	// FailClosed denies everything.
	FailClosed FailureMode = iota
	// FailLastKnown goes on under the last snapshot for Document.MaxStale, without injecting any secret.
	FailLastKnown
)

// DoHMode says whether DNS over HTTPS or TLS to other resolvers is open. The zero value has no opinion, which leaves it closed.
type DoHMode uint8

const (
	DoHUnset DoHMode = iota
	DoHBlock
	DoHAllow
)

// Stage is how much of a connection is known when a verdict is asked for.
type Stage uint8

const (
	// StageName asks whether anything to this name could be allowed: the resolver's question.
	StageName Stage = iota
	// StageConnect asks about a host and a port, before the inside is seen.
	StageConnect
	// StageRequest asks about one HTTP request. Everything is compared.
	StageRequest
)

var (
	actionNames  = []string{"deny", "allow"}
	tlsNames     = []string{"pass", "inspect"}
	foreignNames = []string{"block", "strip", "allow"}
	dnsNames     = []string{"synthetic", "real"}
	logNames     = []string{"full", "count"}
	failureNames = []string{"closed", "last_known"}
	dohNames     = []string{"", "block", "allow"}
	stageNames   = []string{"name", "connect", "request"}
)

func (a Action) String() string             { return nameOf(actionNames, a) }
func (m TLSMode) String() string            { return nameOf(tlsNames, m) }
func (f ForeignCredentials) String() string { return nameOf(foreignNames, f) }
func (m DNSMode) String() string            { return nameOf(dnsNames, m) }
func (m LogMode) String() string            { return nameOf(logNames, m) }
func (m FailureMode) String() string        { return nameOf(failureNames, m) }
func (m DoHMode) String() string            { return nameOf(dohNames, m) }
func (s Stage) String() string              { return nameOf(stageNames, s) }

func (a Action) MarshalText() ([]byte, error)             { return textOf(actionNames, a) }
func (m TLSMode) MarshalText() ([]byte, error)            { return textOf(tlsNames, m) }
func (f ForeignCredentials) MarshalText() ([]byte, error) { return textOf(foreignNames, f) }
func (m DNSMode) MarshalText() ([]byte, error)            { return textOf(dnsNames, m) }
func (m LogMode) MarshalText() ([]byte, error)            { return textOf(logNames, m) }
func (m FailureMode) MarshalText() ([]byte, error)        { return textOf(failureNames, m) }
func (s Stage) MarshalText() ([]byte, error)              { return textOf(stageNames, s) }

func (a *Action) UnmarshalText(b []byte) error             { return setFrom(actionNames, a, b) }
func (m *TLSMode) UnmarshalText(b []byte) error            { return setFrom(tlsNames, m, b) }
func (f *ForeignCredentials) UnmarshalText(b []byte) error { return setFrom(foreignNames, f, b) }
func (m *DNSMode) UnmarshalText(b []byte) error            { return setFrom(dnsNames, m, b) }
func (m *LogMode) UnmarshalText(b []byte) error            { return setFrom(logNames, m, b) }
func (m *FailureMode) UnmarshalText(b []byte) error        { return setFrom(failureNames, m, b) }
func (s *Stage) UnmarshalText(b []byte) error              { return setFrom(stageNames, s, b) }

func nameOf[T ~uint8](names []string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("unknown(%d)", uint8(v))
}

func textOf[T ~uint8](names []string, v T) ([]byte, error) {
	if int(v) >= len(names) {
		return nil, fmt.Errorf("%d is none of %s", uint8(v), strings.Join(names, ", "))
	}
	return []byte(names[v]), nil
}

func setFrom[T ~uint8](names []string, to *T, text []byte) error {
	for i, name := range names {
		if name == string(text) {
			*to = T(i)
			return nil
		}
	}
	return fmt.Errorf("%q is none of %s", text, strings.Join(names, ", "))
}
