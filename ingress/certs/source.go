package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"portreeve.dev/policies/hostname"
)

// An Issuer makes the certificate of one host, in normal form: it begins at from or before, and its life counts from now. It may take its
// time, but not block on a network.
type Issuer interface {
	Issue(host string, from, now time.Time) (*tls.Certificate, error)
}

// Config of a Source.
type Config struct {
	Issuer Issuer
	Known  func(host string) bool // whether a host, in normal form, gets a certificate; asked at each hello
	Keep   int                    // certificates; default 4096
	Now    func() time.Time       // default time.Now
	// Earliest is the earlier of Now and the machine's own clock, which clients on it go by: certificates begin by it. Default Now.
	Earliest func() time.Time
}

// A Source has the certificates of all hosts. It is safe for concurrent use.
type Source struct {
	cfg    Config
	kept   *lru.Cache[string, *tls.Certificate]
	flight singleflight.Group
}

// New returns a Source that has made no certificate yet.
func New(c Config) (*Source, error) {
	if c.Issuer == nil || c.Known == nil {
		return nil, errors.New("certs: an Issuer and a list of hosts are needed")
	}
	if c.Keep == 0 {
		c.Keep = 4096
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Earliest == nil {
		c.Earliest = c.Now
	}
	kept, err := lru.New[string, *tls.Certificate](c.Keep)
	if err != nil {
		return nil, fmt.Errorf("certs: %w", err)
	}
	return &Source{cfg: c, kept: kept}, nil
}

// Get fits tls.Config. Without a certificate it returns none and no error, which TLS tells the client as unrecognized_name.
func (s *Source) Get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	host, err := hostname.Normalize(hello.ServerName)
	if err != nil || !s.cfg.Known(host) {
		return nil, nil
	}
	if c := s.lasting(host); c != nil {
		return c, nil
	}
	v, err, _ := s.flight.Do(host, func() (any, error) {
		if c := s.lasting(host); c != nil { // another flight ended since the look
			return c, nil
		}
		c, err := s.cfg.Issuer.Issue(host, s.cfg.Earliest(), s.cfg.Now())
		if err == nil {
			s.kept.Add(host, c)
		}
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("certificate for %q: %w", host, err)
	}
	return v.(*tls.Certificate), nil
}

// lasting returns the certificate kept for host, or nil where there is none that lasts, and has begun: the machine's clock may have been
// set back since, or right.
func (s *Source) lasting(host string) *tls.Certificate {
	if c, ok := s.kept.Get(host); ok && s.cfg.Now().Add(renewBefore).Before(c.Leaf.NotAfter) && !s.cfg.Earliest().Before(c.Leaf.NotBefore) {
		return c
	}
	return nil
}
