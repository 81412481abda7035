package supervisor

import (
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"portreeve.dev/gateway/config"
	"portreeve.dev/gateway/role"
)

// nodeCapabilities is what making netns, links, rules, mounts and gVisor sandboxes takes. Not among them: loading modules,
// raw I/O, the clock, tracing the kernel, reading its log.
var nodeCapabilities = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_MKNOD, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW, unix.CAP_SETFCAP, unix.CAP_SETGID,
	unix.CAP_SETPCAP, unix.CAP_SETUID, unix.CAP_SYS_ADMIN, unix.CAP_SYS_CHROOT, unix.CAP_SYS_PTRACE, unix.CAP_SYS_RESOURCE,
}

func (s *Supervisor) program(name string) string {
	return filepath.Join(s.config.StateDir, "bin", name)
}

// processes lists the roles in the order in which they start; they stop in the opposite one.
func (s *Supervisor) processes() []*process {
	roles := []job{
		{name: Node, binary: s.program("portreeve-node"), keep: nodeCapabilities, prepare: s.prepareNode, ready: s.nodeReady},
		{name: Edge, binary: s.program("portreeve-edge"), uid: EdgeUID, prepare: s.prepareEdge, ready: s.caged(Edge)},
		{name: Inward, binary: s.program("portreeve-edge"), args: []string{"inward"}, uid: InwardUID, netns: s.netns, prepare: s.prepareInward, ready: s.caged(Inward)},
		{name: Control, binary: s.program("portreeve"), args: []string{"control"}, uid: ControlUID, prepare: s.prepareControl, ready: s.controlReady},
		{name: Ingress, binary: s.program("portreeve"), args: []string{"ingress"}, uid: IngressUID, prepare: s.prepareIngress},
	}
	var all []*process
	for _, r := range roles {
		all = append(all, &process{job: r, broker: s.broker, logDir: filepath.Join(s.config.StateDir, "log"),
			log: s.config.Log, up: make(chan struct{})})
	}
	return all
}

func (s *Supervisor) prepareNode(restart bool) (any, []*os.File, error) {
	reach, only := s.reach()
	return role.NodeStart{
		StateDir: s.config.StateDir, Instance: s.instance, EdgeUID: EdgeUID,
		Runsc: s.program("runsc"), Init: s.program("portreeve-init"), Probe: s.program("portreeve-probe"), TinyImage: s.program(TinyImage),
		Addresses: netip.MustParsePrefix(s.config.Settings.Nodes.AddressRange),
		Synthetic: netip.MustParsePrefix(s.config.Settings.Egress.SyntheticRange),
		Purge:     s.config.Purge, Adopt: restart || !s.config.Purge, Base: *s.config.Settings.Nodes.BuildBase,
		Names: s.config.Settings.Limits.NamesPerSandbox, DoorPorts: s.config.Settings.Egress.Doors.Ports(), Reach: reach, Only: only,
		Connects: s.config.Settings.Limits.ConnectsPerSecond, Lookups: s.config.Settings.Limits.LookupsPerSecond, Clock: s.clock,
	}, nil, nil
}

func (s *Supervisor) nodeReady(body json.RawMessage, files []*os.File) error {
	var ready role.NodeReady
	if err := json.Unmarshal(body, &ready); err != nil {
		closeAll(files)
		return err
	}
	if len(files) != 1 {
		closeAll(files)
		return errors.New("node did not hand over the edge netns")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.edgeNetns != nil {
		s.edgeNetns.Close()
	}
	s.edgeNetns = files[0]
	s.status.EdgeNetns, s.status.RunscRoot, s.status.Base = ready.EdgeNetns, ready.RunscRoot, ready.Base
	return nil
}

// caged keeps what a process saw hold for itself.
func (s *Supervisor) caged(name string) func(json.RawMessage, []*os.File) error {
	return func(body json.RawMessage, files []*os.File) error {
		closeAll(files)
		var caged role.Caged
		if err := json.Unmarshal(body, &caged); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.status.Cages = maps.Clone(s.status.Cages) // the old one is in a report
		if s.status.Cages == nil {
			s.status.Cages = make(map[string]role.Caged)
		}
		s.status.Cages[name] = caged
		return nil
	}
}

func (s *Supervisor) netns() *os.File {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.edgeNetns
}

// resolvers are those that names of the internet are asked of.
func (s *Supervisor) resolvers() []string {
	if named := s.config.Settings.Egress.UpstreamDNS; len(named) > 0 {
		return named
	}
	return config.SystemResolvers()
}

// upstreamCA are the configured authorities, in PEM.
func (s *Supervisor) upstreamCA() (all []string, err error) {
	for _, path := range s.config.Settings.Egress.UpstreamCA {
		pem, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if !strings.Contains(string(pem), "BEGIN CERTIFICATE") {
			return nil, errors.New("egress.upstream_ca: " + path + " holds no certificate in PEM")
		}
		all = append(all, string(pem))
	}
	return all, nil
}

func (s *Supervisor) prepareEdge(bool) (any, []*os.File, error) {
	settings := s.config.Settings
	authorities, err := s.upstreamCA()
	if err != nil {
		return nil, nil, err
	}
	machine, err := os.Hostname()
	if err != nil {
		return nil, nil, err
	}
	start := role.EdgeStart{
		Machine: machine,
		Dir:     filepath.Join(s.config.StateDir, "edge"), UpstreamDNS: s.resolvers(), UpstreamCA: authorities, SystemRoots: config.SystemRoots(),
		Hard: settings.HardRanges(), Always: settings.AlwaysClosed(), Synthetic: netip.MustParsePrefix(settings.Egress.SyntheticRange),
		Limits: role.EdgeLimits{Connections: settings.Limits.ConnectionsPerSandbox, Names: settings.Limits.NamesPerSandbox,
			Lookups: settings.Limits.LookupsPerSecond, Decisions: settings.Limits.DecisionsPerSecond},
		HiddenNames: settings.Egress.AllowHiddenNames, Uncaged: settings.Nodes.WithoutLandlock, Clock: s.clock,
	}
	start.Sources = len(settings.Egress.Sources) > 0
	if start.Upstream, err = upstream(settings.Egress.Upstream); err != nil {
		return nil, nil, err
	}
	if start.Doors, err = edgeDoors(settings.Egress.Doors); err != nil {
		return nil, nil, err
	}
	files, err := doorListeners(settings.Egress.Doors)
	return start, files, err
}

func (s *Supervisor) prepareInward(bool) (any, []*os.File, error) {
	return role.InwardStart{Uncaged: s.config.Settings.Nodes.WithoutLandlock}, nil, nil
}

func (s *Supervisor) prepareControl(bool) (any, []*os.File, error) {
	listener, err := listenFile(s.config.HTTP)
	if err != nil {
		return nil, nil, err
	}
	authorities, err := s.upstreamCA()
	if err != nil {
		return nil, nil, err
	}
	settings := s.config.Settings
	memory, err := settings.MemoryBytes()
	if err != nil {
		return nil, nil, err
	}
	egress, err := settings.OrgLimits()
	if err != nil {
		return nil, nil, err
	}
	sources, err := settings.Egress.Sources.Addrs()
	if err != nil {
		return nil, nil, err
	}
	proxy, err := upstream(settings.Egress.Upstream)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return role.ControlStart{
		UpstreamDNS: s.resolvers(), UpstreamCA: authorities, SystemRoots: config.SystemRoots(),
		Dir: filepath.Join(s.config.StateDir, "control"), Key: s.status.APIKey,
		Exempt: settings.Egress.FloorExempt, Hard: settings.HardRanges(), Always: settings.AlwaysClosed(), Upstream: proxy, Direct: settings.Egress.Upstream.DirectOrgs, Sources: sources,
		Doors: settings.Egress.Doors.Control(), TunnelDomain: settings.Tunnels.Domain, TunnelPort: urlPort(s.config.HTTPS), PlainTunnels: s.config.Purge,
		Canary: *settings.Canary.Every, Clock: s.clock,
		Limits: role.ControlLimits{Sandboxes: settings.Limits.Sandboxes, MemoryBytes: memory,
			CPUMillis: int64(settings.Limits.SandboxCPUs) * 1000, Lifetime: settings.Limits.SandboxLifetime},
		Egress: egress,
	}, []*os.File{listener}, nil
}

func (s *Supervisor) controlReady(body json.RawMessage, files []*os.File) error {
	closeAll(files)
	var ready role.ControlReady
	if err := json.Unmarshal(body, &ready); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.APIKey, s.status.SetupToken = ready.Key, ready.SetupToken
	s.status.APIURL = "http://" + s.config.HTTP + "/api/v1"
	s.status.ConsoleURL = consoleURL(s.config.HTTP)
	s.status.CAFile = filepath.Join(s.config.StateDir, "tunnel-ca.pem")
	if err := os.WriteFile(filepath.Join(s.config.StateDir, "door-ca.pem"), ready.DoorCA, 0o644); err != nil {
		return err
	}
	return os.WriteFile(s.status.CAFile, ready.TunnelCA, 0o644)
}

// urlPort is the port of addr as URLs under https need it.
func urlPort(addr string) string {
	_, port, err := net.SplitHostPort(addr)
	if err != nil || port == "443" {
		return ""
	}
	return port
}

// consoleURL names the console so that browsers keep it and the tunnels on different sites.
func consoleURL(addr string) string {
	a, err := netip.ParseAddrPort(addr)
	if err != nil || !a.Addr().IsLoopback() {
		return "http://" + addr
	}
	return "http://console.localhost:" + strings.TrimPrefix(addr[strings.LastIndex(addr, ":"):], ":")
}

func (s *Supervisor) prepareIngress(bool) (any, []*os.File, error) {
	listener, err := listenFile(s.config.HTTPS)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.HTTPSAddr = s.config.HTTPS
	return role.IngressStart{TunnelDomain: s.config.Settings.Tunnels.Domain, Plain: s.config.Purge, Clock: s.clock}, []*os.File{listener}, nil
}
