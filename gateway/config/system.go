package config

import (
	"bufio"
	"net/netip"
	"os"
	"strings"
)

// Where resolvers stand. systemd-resolved writes a loopback stub into the first; the second has the servers behind it.
var resolverFiles = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// Where Debian, Ubuntu, Fedora and Alpine keep their roots.
var rootFiles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}

// SystemResolvers returns the machine's resolvers as address:port. Loopback ones are left out: the edge's output wall
// keeps it away from everything on lo.
func SystemResolvers() []string {
	for _, path := range resolverFiles {
		if servers := nameservers(path); len(servers) > 0 {
			return servers
		}
	}
	return nil
}

func nameservers(path string) (servers []string) {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(words[1]); err == nil && !a.IsLoopback() {
			servers = append(servers, netip.AddrPortFrom(a, 53).String())
		}
	}
	return servers
}

// SystemRoots returns the machine's certificate roots in PEM; empty where it has none.
func SystemRoots() string {
	for _, path := range rootFiles {
		if b, err := os.ReadFile(path); err == nil {
			return string(b)
		}
	}
	return ""
}
