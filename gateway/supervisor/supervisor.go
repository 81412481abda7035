package supervisor

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"portreeve.dev/gateway/config"
	"portreeve.dev/gateway/internal/clock"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes"
)

// Uids of the unprivileged processes, in a range that no distribution, container engine or systemd hands out.
const (
	EdgeUID uint32 = 1900000001 + iota
	InwardUID
	ControlUID
	IngressUID
)

// Config of a Supervisor.
type Config struct {
	StateDir string         // absolute; made if missing
	HTTP     string         // address:port of the API and console
	HTTPS    string         // address:port of the tunnels
	Settings *config.Config // the configuration file
	BinDir   string         // where the companion programs and runsc are
	Purge    bool           // dev: sandboxes end with the run
	Log      *slog.Logger
	// Changed is called whenever a process came or went, once all have served.
	Changed func(Status)
}

// Status says what runs, and where. It holds the API key: it is for a file of mode 0600 only.
type Status struct {
	APIURL       string         `json:"api_url"`
	APIKey       string         `json:"api_key"`
	ConsoleURL   string         `json:"console_url"`
	TunnelDomain string         `json:"tunnel_domain"`
	HTTPSAddr    string         `json:"https_addr"`
	CAFile       string         `json:"ca_file"`
	Pids         map[string]int `json:"pids"`
	EdgeNetns    string         `json:"edge_netns"`
	Runsc        string         `json:"runsc"`
	RunscRoot    string         `json:"runsc_root"`
	State        string         `json:"state"`
	SetupToken   string         `json:"setup_token,omitempty"`
	Base         string         `json:"base,omitempty"` // see role.NodeReady

	Cages map[string]role.Caged `json:"cages,omitempty"` // of edge and inward
}

// A Supervisor runs the processes of one machine.
type Supervisor struct {
	config   Config
	instance string
	lock     *os.File
	clock    clock.Clock // of the run, for all processes
	broker   *broker
	all      []*process

	mu        sync.Mutex
	status    Status
	edgeNetns *os.File
	serving   bool
}

// New takes the state directory and prepares it. It starts nothing.
func New(c Config) (*Supervisor, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("portreeve runs sandboxes and needs root: run it with sudo")
	}
	if err := prepareState(c.StateDir); err != nil {
		return nil, err
	}
	lock, err := takeLock(filepath.Join(c.StateDir, "lock"))
	if err != nil {
		return nil, err
	}
	line, err := openClock(c.StateDir, c.Log)
	if err != nil {
		lock.Close()
		return nil, err
	}
	s := &Supervisor{config: c, lock: lock, clock: line, instance: nodes.InstanceOf(c.StateDir)}
	s.broker = newBroker(c.Log, s.report)
	if err := installPrograms(c.BinDir, c.StateDir); err != nil {
		lock.Close()
		return nil, err
	}
	s.status = Status{State: c.StateDir, TunnelDomain: c.Settings.Tunnels.Domain, Runsc: s.program("runsc")}
	s.all = s.processes()
	return s, nil
}

// takeLock makes sure that one supervisor at a time uses a state directory.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("taking the state directory: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if err == unix.EWOULDBLOCK {
			return nil, fmt.Errorf("state directory %s is in use by another portreeve: stop that one, or choose another with --state", filepath.Dir(path))
		}
		return nil, fmt.Errorf("taking the state directory: %w", err)
	}
	return f, nil
}

// Run starts everything, keeps it running until ctx ends, and stops it.
func (s *Supervisor) Run(ctx context.Context) error {
	defer s.lock.Close()
	if err := s.checkAddresses(); err != nil {
		return err
	}
	asked := ctx
	ctx, cancel := context.WithCancelCause(asked)
	defer cancel(nil)
	// Stopping goes the other way round, so each process has a context of its own.
	var running sync.WaitGroup
	running.Go(func() { s.keepClock(ctx) })
	ends := make([]context.CancelFunc, len(s.all))
	dones := make([]chan struct{}, len(s.all))
	for i, p := range s.all {
		if ctx.Err() != nil {
			break
		}
		var own context.Context
		own, ends[i] = context.WithCancel(context.WithoutCancel(ctx))
		dones[i] = make(chan struct{})
		running.Go(func() {
			defer close(dones[i])
			if err := p.run(own); err != nil {
				cancel(err)
			}
		})
		select { // the next may need what this one makes
		case <-p.up:
		case <-ctx.Done():
		}
	}
	if ctx.Err() == nil {
		s.mu.Lock()
		s.serving = true
		s.mu.Unlock()
		s.report()
		running.Go(func() { s.tellBase(ctx) })
	}
	<-ctx.Done()
	s.mu.Lock()
	s.serving = false
	s.mu.Unlock()
	for i := len(s.all) - 1; i >= 0; i-- {
		if ends[i] == nil {
			continue
		}
		ends[i]()
		<-dones[i]
	}
	running.Wait()
	if asked.Err() != nil { // whatever its cause: an end that was asked for is no failure
		return nil
	}
	return context.Cause(ctx)
}

// checkAddresses says at once when a port is taken, with the flag that helps, or a source address is not there.
func (s *Supervisor) checkAddresses() error {
	if err := s.config.Settings.Egress.Sources.CheckLocal(); err != nil {
		return err
	}
	doors := s.config.Settings.Egress.Doors
	for flag, addr := range map[string]string{"--http": s.config.HTTP, "--https": s.config.HTTPS, "egress.doors.http": doors.HTTP, "egress.doors.socks": doors.SOCKS} {
		if addr == "" {
			continue
		}
		l, err := listen(addr)
		if err != nil {
			return fmt.Errorf("listening on %s: %w; choose another with %s", addr, err, flag)
		}
		l.Close()
	}
	return nil
}

func listen(addr string) (*net.TCPListener, error) {
	a, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, err
	}
	return net.ListenTCP("tcp", a)
}

// listenFile makes a listener to hand on. The listener itself is closed: the process that gets the file has the only copy.
// Connections of a dead process that are being torn down are no hindrance: net sets SO_REUSEADDR.
func listenFile(addr string) (*os.File, error) {
	l, err := listen(addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", addr, err)
	}
	defer l.Close()
	return l.File()
}

func (s *Supervisor) report() {
	s.mu.Lock()
	if !s.serving || s.config.Changed == nil {
		s.mu.Unlock()
		return
	}
	status := s.status
	status.Pids = map[string]int{"supervisor": os.Getpid()}
	s.mu.Unlock()
	for _, p := range s.all {
		status.Pids[p.job.name] = p.current()
	}
	s.config.Changed(status)
}

// Signals that end a run.
var Signals = []os.Signal{syscall.SIGINT, syscall.SIGTERM}
