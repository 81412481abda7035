package dial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"portreeve.dev/policies"
)

// Refused is a deny: of the host, of every address it has, or of one name of its alias chain.
type Refused struct {
	Verdict policies.Verdict
	Addr    netip.Addr // the first address that was refused; invalid if a name was
	Name    string     // the name that was refused, if an alias
}

func (e *Refused) Error() string { return fmt.Sprintf("refused: %v", e.Verdict.Reason) }

// Kind says in one word why there is no connection; it is a closed list, fit for a record and a metric.
type Kind string

const (
	NXDomain       Kind = "resolve_nxdomain"
	ServFail       Kind = "resolve_servfail"
	ResolveTimeout Kind = "resolve_timeout"
	NoAddress      Kind = "resolve_no_address"
	AliasLoop      Kind = "resolve_alias_loop" // or a chain that is too long
	ConnRefused    Kind = "dial_refused"
	Unreachable    Kind = "dial_unreachable"
	DialTimeout    Kind = "dial_timeout"
	DialFailed     Kind = "dial_failed"
	SourceMissing  Kind = "source_unavailable" // the org's source address could not be used
	Canceled       Kind = "canceled"           // the caller gave up
)

// What the company's proxy may do instead of connecting.
const (
	ProxyDown    Kind = "company_proxy_down"    // it takes no connection, or doesn't prove its name
	ProxyLogin   Kind = "company_proxy_login"   // it doesn't accept our login
	ProxyRefused Kind = "company_proxy_refused" // it says no
	ProxyAnswer  Kind = "company_proxy_answer"  // what it says is no answer: broken off, too large, late, something else
)

// OfProxy reports whether the company's proxy is why there is no connection.
func (k Kind) OfProxy() bool {
	switch k {
	case ProxyDown, ProxyLogin, ProxyRefused, ProxyAnswer:
		return true
	}
	return false
}

// Resolving reports whether no address was found, as opposed to found and not reached.
func (k Kind) Resolving() bool {
	switch k {
	case NXDomain, ServFail, ResolveTimeout, NoAddress, AliasLoop:
		return true
	}
	return false
}

// Error is a failure after, or without, a verdict.
type Error struct {
	Kind Kind
	Host string // what was asked for: name or address
	Err  error  // may be nil
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("dialing %q: %s", e.Host, e.Kind)
	}
	return fmt.Sprintf("dialing %q: %s: %v", e.Host, e.Kind, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// connectKind sorts an error of connect(2). A host wall answers with one of the unreachable ones.
func connectKind(ctx context.Context, err error) Kind {
	var ne net.Error
	var proxy *proxyError
	var source *sourceError
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return Canceled
	case errors.As(err, &source):
		return SourceMissing
	case errors.As(err, &proxy):
		return proxy.kind
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return ConnRefused
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return Unreachable
	case errors.As(err, &ne) && ne.Timeout():
		return DialTimeout
	}
	return DialFailed
}

// proxyFault reports whether err would meet every other target too.
func proxyFault(err error) bool {
	var proxy *proxyError
	return errors.As(err, &proxy) && (proxy.kind == ProxyDown || proxy.kind == ProxyLogin)
}
