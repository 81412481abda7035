package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"portreeve.dev/gateway/internal/quantity"
	"portreeve.dev/gateway/role"
	"portreeve.dev/policies"
)

// Config is the whole file. Each field's comment says its default.
type Config struct {
	Egress  Egress  `yaml:"egress"`
	Nodes   Nodes   `yaml:"nodes"`
	Tunnels Tunnels `yaml:"tunnels"`
	Limits  Limits  `yaml:"limits"`
	Canary  Canary  `yaml:"canary"`
}

// Canary is how often a throw-away sandbox shows that denial holds.
type Canary struct {
	Every *time.Duration `yaml:"every"` // default 1m; 0 is never
}

// Egress is how inside bytes get out.
type Egress struct {
	UpstreamDNS    []string         `yaml:"upstream_dns"`    // resolvers: address, address:port, or over TLS tls://address:port#name, then all; default: the machine's
	Upstream       Upstream         `yaml:"upstream"`        // the company's proxy; default: none
	UpstreamCA     []string         `yaml:"upstream_ca"`     // PEM files trusted for upstreams beside the machine's roots
	Sources        Sources          `yaml:"sources"`         // where orgs' connections leave from, addresses of this machine; default: it chooses
	FloorExempt    []role.Exemption `yaml:"floor_exempt"`    // what of the soft floor is open, to which ports and orgs
	SyntheticRange string           `yaml:"synthetic_range"` // addresses that stand for names; default 198.18.0.0/15
	// Pass hellos that may hide another server name than the one that was judged to every server, also to those that read hidden names; default false.
	AllowHiddenNames bool         `yaml:"allow_hidden_names"`
	Doors            Doors        `yaml:"doors"`  // ways in from the network, for sandboxes that others run; default: none
	Limits           EgressLimits `yaml:"limits"` // of each org; an org may set lower ones for itself
}

// EgressLimits bound what one org moves, and how many connections it has. Quantities of bytes are like 512Ki, 10Mi or 2Ti; none is
// no limit.
type EgressLimits struct {
	ConnectionsPerOrg         int    `yaml:"connections_per_org"`         // live; default 16384
	ConnectionsPerDestination int    `yaml:"connections_per_destination"` // live, of an org to one host and port; default 2048
	SandboxIn                 string `yaml:"sandbox_in"`                  // bytes per second to one sandbox; default none
	SandboxOut                string `yaml:"sandbox_out"`                 // bytes per second from one sandbox; default none
	OrgIn                     string `yaml:"org_in"`                      // bytes per second to all sandboxes of an org; default none
	OrgOut                    string `yaml:"org_out"`                     // bytes per second from all sandboxes of an org; default none
	MonthlyQuota              string `yaml:"monthly_quota"`               // bytes of an org in a calendar month of UTC, both ways; default none
}

// Nodes is how sandboxes run on this machine.
type Nodes struct {
	AddressRange    string `yaml:"address_range"`    // address pairs of sandboxes; default 10.200.0.0/16
	WithoutLandlock bool   `yaml:"without_landlock"` // run edge and inward although the kernel has no Landlock; default false
	BuildBase       *bool  `yaml:"build_base"`       // build the image base at the first start; default true
}

// Tunnels is how outside calls get in.
type Tunnels struct {
	Domain string `yaml:"domain"` // under which each tunnel has a name; default tunnel.localhost
}

// Limits bound what one org or sandbox may use.
type Limits struct {
	Sandboxes             int           `yaml:"sandboxes"`               // live, per org; default 50
	SandboxMemory         string        `yaml:"sandbox_memory"`          // of one sandbox; default 8Gi
	SandboxCPUs           int           `yaml:"sandbox_cpus"`            // of one sandbox; default 8
	SandboxLifetime       time.Duration `yaml:"sandbox_lifetime"`        // of one sandbox; default 24h
	ConnectionsPerSandbox int           `yaml:"connections_per_sandbox"` // live egress connections; default 512
	NamesPerSandbox       int           `yaml:"names_per_sandbox"`       // distinct names looked up; default 4096
	// Of one sandbox, over time; for a moment some times as many.
	ConnectsPerSecond  int `yaml:"connects_per_second"`  // new connections; default 200
	LookupsPerSecond   int `yaml:"lookups_per_second"`   // DNS queries; default 200
	DecisionsPerSecond int `yaml:"decisions_per_second"` // connections, requests and denials that are written down, others are refused; default 200
}

// Load reads path strictly and completes it with defaults.
func Load(path string) (*Config, error) {
	var data []byte
	if path != "" {
		var err error
		if data, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("reading configuration: %w", err)
		}
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse is Load of the file's bytes.
func Parse(data []byte) (*Config, error) {
	c := new(Config)
	if err := knownKeys(data, c); err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(c); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	c.complete()
	return c, c.validate()
}

func (c *Config) complete() {
	set(&c.Egress.SyntheticRange, "198.18.0.0/15")
	set(&c.Nodes.AddressRange, "10.200.0.0/16")
	c.Egress.Doors.complete()
	c.Egress.Upstream.complete()
	if c.Nodes.BuildBase == nil {
		yes := true
		c.Nodes.BuildBase = &yes
	}
	for i := range c.Egress.FloorExempt {
		if c.Egress.FloorExempt[i].Orgs == nil {
			c.Egress.FloorExempt[i].Orgs = []string{"*"}
		}
	}
	if c.Canary.Every == nil {
		minute := time.Minute
		c.Canary.Every = &minute
	}
	set(&c.Tunnels.Domain, "tunnel.localhost")
	set(&c.Limits.Sandboxes, 50)
	set(&c.Limits.SandboxMemory, "8Gi")
	set(&c.Limits.SandboxCPUs, 8)
	set(&c.Limits.SandboxLifetime, 24*time.Hour)
	set(&c.Limits.ConnectionsPerSandbox, 512)
	set(&c.Limits.NamesPerSandbox, 4096)
	set(&c.Limits.ConnectsPerSecond, 200)
	set(&c.Limits.LookupsPerSecond, 200)
	set(&c.Limits.DecisionsPerSecond, 200)
	set(&c.Egress.Limits.ConnectionsPerOrg, 16384)
	set(&c.Egress.Limits.ConnectionsPerDestination, 2048)
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c *Config) validate() error {
	synthetic, err := prefix("egress.synthetic_range", c.Egress.SyntheticRange, 20)
	if err != nil {
		return err
	}
	pairs, err := prefix("nodes.address_range", c.Nodes.AddressRange, 28)
	if err != nil {
		return err
	}
	if synthetic.Overlaps(pairs) {
		return fmt.Errorf("egress.synthetic_range: %v overlaps nodes.address_range %v", synthetic, pairs)
	}
	for i, s := range c.Egress.UpstreamDNS {
		r, err := role.ParseResolver(s)
		if err != nil {
			return fmt.Errorf("egress.upstream_dns[%d]: %w", i, err)
		}
		if c.Egress.UpstreamDNS[i] = r.String(); strings.HasPrefix(c.Egress.UpstreamDNS[i], "tls://") != strings.HasPrefix(c.Egress.UpstreamDNS[0], "tls://") {
			return fmt.Errorf("egress.upstream_dns[%d]: either all resolvers are asked over TLS or none: one in the clear would hear what the others don't answer", i)
		}
	}
	if _, err := c.Egress.Sources.Addrs(); err != nil {
		return err
	}
	if err := c.upstream(); err != nil {
		return err
	}
	if _, err := c.MemoryBytes(); err != nil {
		return err
	}
	if _, err := c.OrgLimits(); err != nil {
		return err
	}
	if every := *c.Canary.Every; every < 0 || every > 0 && every < time.Second {
		return fmt.Errorf("canary.every: %v is neither 0, which is never, nor a second or more", every)
	}
	for field, n := range map[string]int{"sandboxes": c.Limits.Sandboxes, "sandbox_cpus": c.Limits.SandboxCPUs,
		"connections_per_sandbox": c.Limits.ConnectionsPerSandbox, "names_per_sandbox": c.Limits.NamesPerSandbox,
		"connects_per_second": c.Limits.ConnectsPerSecond, "lookups_per_second": c.Limits.LookupsPerSecond, "decisions_per_second": c.Limits.DecisionsPerSecond} {
		if n < 0 {
			return fmt.Errorf("limits.%s: %d is negative", field, n)
		}
	}
	if err := c.Egress.Doors.validate(); err != nil {
		return err
	}
	return c.floor()
}

// floor checks the exemptions as the edge will, so that a wrong one starts nothing.
func (c *Config) floor() error {
	floor := policies.FloorConfig{Hard: c.HardRanges(), Always: c.AlwaysClosed()}
	for i, e := range c.Egress.FloorExempt {
		p, err := netip.ParsePrefix(e.CIDR)
		if err != nil {
			return fmt.Errorf("egress.floor_exempt[%d].cidr: %q is not a prefix like 203.0.113.0/24", i, e.CIDR)
		}
		floor.Exempt = append(floor.Exempt, policies.Exemption{CIDR: p, Ports: e.Ports, Orgs: e.Orgs})
	}
	if _, err := policies.NewFloor(floor); err != nil {
		return fmt.Errorf("egress.floor_exempt: %w", err)
	}
	return nil
}

// HardRanges are the ranges of ours that nobody may dial, to be added to the hard floor.
func (c *Config) HardRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix(c.Egress.SyntheticRange), netip.MustParsePrefix(c.Nodes.AddressRange)}
}

// MemoryBytes is limits.sandbox_memory in bytes.
func (c *Config) MemoryBytes() (int64, error) {
	n, ok := quantity.Bytes(c.Limits.SandboxMemory)
	if !ok {
		return 0, fmt.Errorf("limits.sandbox_memory: %q is not a quantity like 512Mi or 2Gi", c.Limits.SandboxMemory)
	}
	return n, nil
}

func prefix(field, s string, bits int) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(s)
	if err != nil || !p.Addr().Is4() || p.Bits() > bits {
		return p, fmt.Errorf("%s: %q is not an IPv4 prefix of /%d or wider", field, s, bits)
	}
	return p.Masked(), nil
}
