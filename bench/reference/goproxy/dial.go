package main

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// dialer sends every name to one address, as the one resolver of a measurement would.
func dialer(to string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, to)
	}
}

func connectDialer(to string) func(string, string) (net.Conn, error) {
	return func(network, _ string) (net.Conn, error) { return net.Dial(network, to) }
}

// store keeps leaves, as whoever uses goproxy in earnest has it do.
type store struct {
	mu     sync.Mutex
	leaves map[string]*tls.Certificate
}

func (s *store) Fetch(host string, make func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.leaves[host]; c != nil {
		return c, nil
	}
	c, err := make()
	if err != nil {
		return nil, err
	}
	if s.leaves == nil {
		s.leaves = map[string]*tls.Certificate{}
	}
	s.leaves[host] = c
	return c, nil
}
