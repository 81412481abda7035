package supervisor

import (
	"fmt"
	"os"
	"strings"

	"portreeve.dev/gateway/config"
	"portreeve.dev/gateway/role"
)

// upstream reads the proxy's password for those who can't read it for themselves.
func upstream(u config.Upstream) (*role.UpstreamProxy, error) {
	p, err := u.Proxy()
	if err != nil || p == nil || u.PasswordFile == "" {
		return p, err
	}
	password, err := os.ReadFile(u.PasswordFile)
	if err != nil {
		return nil, fmt.Errorf("egress.upstream.password_file: %w", err)
	}
	p.Password = strings.TrimRight(string(password), "\r\n")
	if p.Password == "" {
		return nil, fmt.Errorf("egress.upstream.password_file: %s is empty", u.PasswordFile)
	}
	return p, nil
}

// reach is what the edge reaches wherever that is, and whether that is all: where everybody's connections go through the company's
// proxy, the kernel holds the edge to it, and to those that it asks for names.
func (s *Supervisor) reach() (reach []role.Reach, only bool) {
	settings := s.config.Settings.Egress.Upstream
	proxy, err := settings.Proxy()
	if err != nil || proxy == nil {
		return nil, false
	}
	for _, a := range proxy.Addrs {
		reach = append(reach, role.Reach{Addr: a})
	}
	if !settings.Everybody() {
		return reach, false
	}
	for _, text := range s.resolvers() {
		if r, err := role.ParseResolver(text); err == nil && !proxy.DNS {
			reach = append(reach, role.Reach{Addr: r.Addr, UDP: r.Name == ""})
		}
	}
	return reach, true
}
