package config

import (
	"fmt"
	"net/netip"

	"portreeve.dev/gateway/role"
	"portreeve.dev/policies/hostname"
)

// Doors are the ways in from the network for sandboxes that others run. What isn't named isn't there.
type Doors struct {
	HTTP        string `yaml:"http"`        // address:port of the HTTP proxy, over TLS
	SOCKS       string `yaml:"socks"`       // address:port of SOCKS5, over TLS
	Name        string `yaml:"name"`        // by which clients dial them; default localhost, where they listen on loopback
	Certificate string `yaml:"certificate"` // PEM file with the chain for that name; default: signed by an authority of this installation's
	Key         string `yaml:"key"`         // PEM file with its key
}

func (d *Doors) complete() {
	if d.Name == "" && (d.HTTP != "" || d.SOCKS != "") && d.onLoopback(d.HTTP) && d.onLoopback(d.SOCKS) {
		d.Name = "localhost"
	}
}

func (d *Doors) onLoopback(addr string) bool {
	a, err := netip.ParseAddrPort(addr)
	return addr == "" || err == nil && a.Addr().IsLoopback()
}

func (d *Doors) validate() error {
	for field, addr := range map[string]string{"http": d.HTTP, "socks": d.SOCKS} {
		if addr == "" {
			continue
		}
		if a, err := netip.ParseAddrPort(addr); err != nil || a.Port() == 0 {
			return fmt.Errorf("egress.doors.%s: %q is not address:port, like 0.0.0.0:8444", field, addr)
		}
	}
	switch {
	case d.HTTP == "" && d.SOCKS == "":
		if d.Certificate != "" || d.Key != "" {
			return fmt.Errorf("egress.doors: a certificate without a door; name the address of one under http or socks")
		}
		return nil
	case d.HTTP == d.SOCKS:
		return fmt.Errorf("egress.doors.socks: %q is the address of the other door, too", d.SOCKS)
	case d.Name == "":
		return fmt.Errorf("egress.doors.name: the doors don't listen on loopback only, so their certificate needs the name by which clients dial them")
	case (d.Certificate == "") != (d.Key == ""):
		return fmt.Errorf("egress.doors: certificate and key go together")
	}
	if name, err := hostname.Normalize(d.Name); err != nil || name != d.Name {
		return fmt.Errorf("egress.doors.name: %q is not a host name in lower case", d.Name)
	}
	return nil
}

// Ports are those of the doors.
func (d *Doors) Ports() (ports []uint16) {
	for _, addr := range []string{d.HTTP, d.SOCKS} {
		if a, err := netip.ParseAddrPort(addr); err == nil {
			ports = append(ports, a.Port())
		}
	}
	return ports
}

// Control is what control must know of the doors.
func (d *Doors) Control() (c role.ControlDoors) {
	if a, err := netip.ParseAddrPort(d.HTTP); err == nil {
		c.HTTP = fmt.Sprintf("%s:%d", d.Name, a.Port())
	}
	if a, err := netip.ParseAddrPort(d.SOCKS); err == nil {
		c.SOCKS = fmt.Sprintf("%s:%d", d.Name, a.Port())
	}
	c.Own = d.Certificate == ""
	return c
}
