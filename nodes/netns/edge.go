package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"

	"github.com/vishvananda/netlink"
	vns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Packets that the firewall marked for a listener are delivered locally, whatever their destination.
const (
	proxyMark    = 1
	proxyTable   = 100
	proxyRulePri = 100
)

// Edge is the namespace that holds the edge's ends of all links, and no uplink. It is safe for concurrent use.
type Edge struct {
	Name string

	mu     sync.RWMutex
	closed bool // a closed netlink handle would go on working, in the namespace of the caller
	file   *os.File
	nl     *netlink.Handle
}

// OpenEdge opens the edge netns of that name, or makes it; created tells which. One that is found is set up again,
// which changes nothing where nothing was wrong, and keeps its links. One node at a time may do this: a name that
// stands for nothing is taken to be the rest of a crash.
func OpenEdge(name string) (edge *Edge, created bool, err error) {
	f, err := open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := Remove(name); err != nil {
			return nil, false, err
		}
		created = true
		f, err = create(name, furnishEdge)
		if err != nil {
			return nil, false, err
		}
	case err != nil:
		return nil, false, err
	default:
		if err := Do(int(f.Fd()), furnishEdge); err != nil {
			_ = f.Close()
			return nil, false, fmt.Errorf("adopting edge netns %q: %w", name, err)
		}
	}
	h, err := netlink.NewHandleAt(vns.NsHandle(f.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		_ = f.Close()
		return nil, false, fmt.Errorf("opening netlink in edge netns %q: %w", name, err)
	}
	edge = &Edge{Name: name, file: f, nl: h}
	if err := edge.Check(); err != nil {
		edge.Close()
		return nil, created, err
	}
	return edge, created, nil
}

// Fd is the namespace. It stays open until Close.
func (e *Edge) Fd() int { return int(e.file.Fd()) }

// Do runs f inside the edge netns, on a thread that is thrown away.
func (e *Edge) Do(f func() error) error {
	release, err := e.use()
	if err != nil {
		return err
	}
	defer release()
	return Do(e.Fd(), f)
}

// Close lets go of the namespace and leaves it as it is, for the next process to adopt. It waits for calls that
// are under way; later ones fail.
func (e *Edge) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	e.nl.Close()
	_ = e.file.Close()
}

func (e *Edge) use() (release func(), err error) {
	e.mu.RLock()
	if e.closed {
		e.mu.RUnlock()
		return nil, fmt.Errorf("edge netns %q: %w", e.Name, os.ErrClosed)
	}
	return e.mu.RUnlock, nil
}

// Remove takes the name away and closes. The links end when the last socket and process inside are gone.
func (e *Edge) Remove() error {
	e.Close()
	return Remove(e.Name)
}

// furnishEdge runs inside: settings before links, then lo and the way to the listeners.
func furnishEdge() error {
	if err := apply(edgeSettings); err != nil {
		return err
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening netlink: %w", err)
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding lo: %w", err)
	}
	if err := h.LinkSetUp(lo); err != nil {
		return fmt.Errorf("setting lo up: %w", err)
	}
	if err := h.RuleAdd(proxyRule()); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding the rule for mark %d: %w", proxyMark, err)
	}
	if err := h.RouteReplace(&netlink.Route{
		LinkIndex: lo.Attrs().Index, Table: proxyTable, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST, Dst: everywhere(),
	}); err != nil {
		return fmt.Errorf("adding the local route of table %d: %w", proxyTable, err)
	}
	return nil
}

func proxyRule() *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Priority, r.Mark, r.Table = unix.AF_INET, proxyRulePri, proxyMark, proxyTable
	return r
}

func everywhere() *net.IPNet { return &net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)} }
