package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ProductOptions say how the product is started; the zero value opens the lab's addresses and nothing else.
type ProductOptions struct {
	NoExemption bool          // keep the documentation ranges refused
	Config      string        // YAML appended to the configuration, for sections other than egress
	UpstreamDNS string        // the resolver; default: the lab's name server, in the clear
	State       string        // state directory; default: one in the lab's folder
	Ready       time.Duration // how long it may take to be ready; default two minutes
}

// Info is what the product's info file says.
type Info struct {
	APIURL       string         `json:"api_url"`
	APIKey       string         `json:"api_key"`
	ConsoleURL   string         `json:"console_url"`
	TunnelDomain string         `json:"tunnel_domain"`
	HTTPSAddr    string         `json:"https_addr"`
	CAFile       string         `json:"ca_file"`
	PIDs         map[string]int `json:"pids"`
	EdgeNetns    string         `json:"edge_netns"`
	Runsc        string         `json:"runsc"`
	RunscRoot    string         `json:"runsc_root"`
	State        string         `json:"state"`
	SetupToken   string         `json:"setup_token"`
}

// A Product is one run of "portreeve dev" in the lab's gateway namespace.
type Product struct {
	Info    Info
	Bin     string // folder of the binaries
	State   string
	LogFile string // what it printed

	lab  *Lab
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how, once done is closed
}

// StopLimit is how long the product may take from SIGTERM to its end.
const StopLimit = 10 * time.Second

// BinDir returns the folder of the product's binaries: $PORTREEVE_BIN, else bin/ of the repository.
func BinDir() (string, error) {
	dir := os.Getenv("PORTREEVE_BIN")
	if dir == "" {
		root, err := RepoRoot()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, "bin")
	}
	if _, err := os.Stat(filepath.Join(dir, "portreeve")); err != nil {
		return "", fmt.Errorf("no portreeve in %s: run make build: %w", dir, err)
	}
	return dir, nil
}

// RepoRoot returns the folder of go.mod above the working folder.
func RepoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working folder")
		}
		dir = parent
	}
}

// StartProduct starts the product and waits until it is ready. It is stopped with the test, unless the test stopped or
// killed it before; what it printed is shown when the test failed.
func (l *Lab) StartProduct(t TB, o ProductOptions) *Product {
	t.Helper()
	p, err := l.NewProduct(o)
	if p != nil {
		t.Cleanup(func() {
			if err := p.Stop(); err != nil {
				t.Errorf("stopping the product: %v", err)
			}
			if t.Failed() {
				t.Logf("the product printed:\n%s", p.Log(200))
				t.Logf("its processes said last:\n%s", p.ProcessLogs(30))
			}
		})
	}
	if err != nil {
		t.Fatalf("starting the product: %v", err)
	}
	return p
}

// NewProduct is StartProduct for callers that stop it themselves. A product that was started but isn't ready is
// returned with the error.
func (l *Lab) NewProduct(o ProductOptions) (*Product, error) {
	bin, err := BinDir()
	if err != nil {
		return nil, err
	}
	p := &Product{Bin: bin, State: o.State, lab: l, done: make(chan struct{})}
	run, err := os.MkdirTemp(l.Dir, "run")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(run, 0o755); err != nil { // the product's other uids pass through
		return nil, err
	}
	if p.State == "" {
		p.State = filepath.Join(run, "state")
	}
	l.mu.Lock()
	l.states = append(l.states, p.State)
	l.mu.Unlock()
	p.LogFile = filepath.Join(run, "log")
	config, info := filepath.Join(run, "config.yaml"), filepath.Join(run, "info.json")
	if err := os.WriteFile(config, []byte(l.config(o)), 0o644); err != nil {
		return nil, err
	}
	if err := p.start(config, info); err != nil {
		return nil, err
	}
	limit := o.Ready
	if limit == 0 {
		limit = 2 * time.Minute
	}
	return p, p.await(info, limit)
}

// config writes the product's configuration: this lab's name server and CA, and its addresses if wanted.
func (l *Lab) config(o ProductOptions) string {
	var b strings.Builder
	resolver := o.UpstreamDNS
	if resolver == "" {
		resolver = l.DNS.Addr.String()
	}
	fmt.Fprintf(&b, "egress:\n  upstream_dns: [%q]\n  upstream_ca: [%q]\n", resolver, l.CA.File)
	if !o.NoExemption {
		b.WriteString("  floor_exempt:\n")
		for _, cidr := range []any{near, far} {
			fmt.Fprintf(&b, "    - {cidr: %q, ports: [7, 22, 25, 53, 80, 443, 5432, 8080]}\n", cidr)
		}
	}
	b.WriteString(o.Config) // first what may go on about egress
	if !strings.Contains(o.Config, "canary:") {
		b.WriteString("canary: {every: 0s}\n") // its sandboxes would be in what tests count
	}
	return b.String()
}

func (p *Product) start(config, info string) error {
	log, err := os.Create(p.LogFile)
	if err != nil {
		return err
	}
	defer log.Close()
	p.cmd = exec.Command("ip", "netns", "exec", p.lab.Gateway.Name, filepath.Join(p.Bin, "portreeve"), "dev",
		"--state", p.State, "--http", "127.0.0.1:8080", "--https", "127.0.0.1:8443", "--config", config, "--info", info)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a signal to the test's terminal is not for it
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go p.wait()
	return nil
}

func (p *Product) wait() {
	p.err = p.cmd.Wait()
	close(p.done)
}

// await waits for the info file, which appears when the product is ready.
func (p *Product) await(file string, limit time.Duration) error {
	deadline := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if data, err := os.ReadFile(file); err == nil {
			if err := json.Unmarshal(data, &p.Info); err == nil {
				return nil
			}
		}
		select {
		case <-p.done:
			return fmt.Errorf("it ended before it was ready: %v\n%s", p.err, p.Log(40))
		case <-deadline:
			return fmt.Errorf("it is not ready after %v\n%s", limit, p.Log(40))
		case <-tick.C:
		}
	}
}

// Done is closed when the product's first process has ended.
func (p *Product) Done() <-chan struct{} { return p.done }

// Stop asks the product to end and waits for it. Taking longer than StopLimit, or a status other than 0, is an error.
// It is none when it has ended already.
func (p *Product) Stop() error {
	select {
	case <-p.done:
		return nil
	default:
	}
	start := time.Now()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		if took := time.Since(start); took > StopLimit {
			return fmt.Errorf("it took %v to stop, more than %v", took.Round(time.Millisecond), StopLimit)
		}
		return p.err
	case <-time.After(3 * StopLimit):
		p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("it did not stop within %v", 3*StopLimit)
	}
}

// Log returns the last lines that the product printed.
func (p *Product) Log(lines int) string { return tail(p.LogFile, lines) }

// ProcessLogs returns the end of each process's own log, as long as the state is there.
func (p *Product) ProcessLogs(lines int) string {
	files, err := filepath.Glob(filepath.Join(p.State, "log", "*.log"))
	if err != nil {
		return err.Error()
	}
	var all strings.Builder
	for _, file := range files {
		fmt.Fprintf(&all, "%s:\n%s\n", filepath.Base(file), tail(file, lines))
	}
	return all.String()
}

func tail(file string, lines int) string {
	data, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// A Run is what a command came to.
type Run struct {
	Stdout, Stderr string
	Code           int // -1 when it ran out of time or did not start
}

func (r Run) String() string {
	return fmt.Sprintf("exit %d\nstdout: %s\nstderr: %s", r.Code, r.Stdout, r.Stderr)
}

// CommandLimit is how long one command may take.
const CommandLimit = 2 * time.Minute

// CLI runs bin/portreeve with the arguments against this product.
func (p *Product) CLI(args ...string) Run { return p.CLIWith("", args...) }

// CLIWith is CLI with something on standard input.
func (p *Product) CLIWith(stdin string, args ...string) Run {
	ctx, cancel := context.WithTimeout(context.Background(), CommandLimit)
	defer cancel()
	cmd := p.Command(ctx, args...)
	cmd.Stdin = strings.NewReader(stdin)
	return run(cmd)
}

// Command prepares bin/portreeve with the arguments in the gateway namespace, for tests that look at its start alone.
func (l *Lab) Command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	bin, err := BinDir()
	if err != nil {
		return nil, err
	}
	return l.command(ctx, bin, args...), nil
}

func (l *Lab) command(ctx context.Context, bin string, args ...string) *exec.Cmd {
	args = append([]string{"netns", "exec", l.Gateway.Name, filepath.Join(bin, "portreeve")}, args...)
	return exec.CommandContext(ctx, "ip", args...)
}

// Command prepares bin/portreeve with the arguments, for tests that watch it while it runs.
func (p *Product) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := p.lab.command(ctx, p.Bin, args...)
	cmd.Env = append(os.Environ(), "PORTREEVE_URL="+p.Info.APIURL, "PORTREEVE_KEY="+p.Info.APIKey)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// InEdge runs a program in the product's edge namespace.
func (p *Product) InEdge(args ...string) Run {
	name := p.Info.EdgeNetns
	if !filepath.IsAbs(name) {
		name = filepath.Join("/run/netns", name)
	}
	// The name is mounted where the product sees it: "ip netns exec" gave it mounts of its own.
	file := name
	for _, pid := range p.alive() {
		through := fmt.Sprintf("/proc/%d/root%s", pid, name)
		if _, err := os.Stat(through); err == nil {
			file = through
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), CommandLimit)
	defer cancel()
	return run(exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + file}, args...)...))
}

func run(cmd *exec.Cmd) Run {
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	r := Run{stdout.String(), stderr.String(), -1}
	if cmd.ProcessState != nil {
		r.Code = cmd.ProcessState.ExitCode()
	}
	if err != nil && r.Code == -1 {
		r.Stderr += "\n" + err.Error()
	}
	return r
}

// Runsc runs the product's runsc against its sandboxes, as root on the machine.
func (p *Product) Runsc(args ...string) Run {
	ctx, cancel := context.WithTimeout(context.Background(), CommandLimit)
	defer cancel()
	return run(exec.CommandContext(ctx, p.Info.Runsc, append([]string{"--root", p.Info.RunscRoot}, args...)...))
}
