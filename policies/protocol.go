package policies

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"
)

// Protocol is a set of application protocols. One bit is one protocol; zero is none, or not known yet.
type Protocol uint8

const (
	HTTPS    Protocol = 1 << iota // HTTP inside TLS
	HTTP                          // HTTP in the clear
	TLS                           // anything inside TLS, known by its server name only
	TCP                           // any bytes at all
	SSH                           // by its banner
	Postgres                      // by its first message

	// AllProtocols is every protocol there is.
	AllProtocols = HTTPS | HTTP | TLS | TCP | SSH | Postgres
)

var protocolNames = []string{"https", "http", "tls", "tcp", "ssh", "postgres"}

// The port that goes without saying; tcp has none.
var protocolPorts = []uint16{443, 80, 443, 0, 22, 5432}

// Has reports whether every protocol of q is in p. No set has the empty one.
func (p Protocol) Has(q Protocol) bool { return q != 0 && p&q == q }

// One reports whether p is exactly one known protocol.
func (p Protocol) One() bool { return bits.OnesCount8(uint8(p)) == 1 && p&^AllProtocols == 0 }

// Port is the port that goes without saying for one protocol; 0: there is none.
func (p Protocol) Port() uint16 {
	if !p.One() {
		return 0
	}
	return protocolPorts[bits.TrailingZeros8(uint8(p))]
}

// Names lists the protocols of the set, in the order of the constants.
func (p Protocol) Names() []string {
	names := make([]string, 0, len(protocolNames))
	for i, name := range protocolNames {
		if p&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// String is the protocol's name, several joined by "+", and empty for none.
func (p Protocol) String() string { return strings.Join(p.Names(), "+") }

// MarshalJSON writes the list of names.
func (p Protocol) MarshalJSON() ([]byte, error) { return json.Marshal(p.Names()) }

// UnmarshalJSON reads a list of names.
func (p *Protocol) UnmarshalJSON(data []byte) error {
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		return err
	}
	var set Protocol
	for _, name := range names {
		one, ok := ParseProtocol(name)
		if !ok {
			return fmt.Errorf("%q is none of %s", name, strings.Join(protocolNames, ", "))
		}
		set |= one
	}
	*p = set
	return nil
}

// ParseProtocol returns the protocol of that name.
func ParseProtocol(name string) (Protocol, bool) {
	for i, known := range protocolNames {
		if known == name {
			return 1 << i, true
		}
	}
	return 0, false
}
