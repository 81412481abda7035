package nodes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// InstanceOf returns the name of the instance whose state is in dir, an absolute path: it is part of the names of
// everything that the instance makes on the machine.
func InstanceOf(dir string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(dir)))
	return hex.EncodeToString(sum[:3])
}

// Config of a node. All fields without a default are needed.
type Config struct {
	StateDir string // absolute; the node's things are in node/ and guest/ below it
	Instance string // see InstanceOf
	Init     string // the portreeve-init program, static; copied into the state directory
	Probe    string // the portreeve-probe program, static; copied beside it. Default: none

	Driver   Driver
	Network  Network
	Firewall Firewall
	Wire     Wire
	Images   Images
	Cgroups  Cgroups

	// Events is told what happens, in order for each sandbox. It must not block and not call the node. Default: nobody.
	Events func(Event)
	Clock  Clock         // default: the machine's
	Log    *slog.Logger  // default: none
	Grace  time.Duration // for a removal that nobody waits for; default 2 minutes
}

// A Node is the sandboxes of one machine. It is safe for concurrent use; commands for one sandbox wait for each other.
type Node struct {
	c     Config
	dirs  dirs
	guest string // directory with the init program

	mu     sync.Mutex
	boxes  map[string]*box // by sandbox id
	closed bool
	wg     sync.WaitGroup // watchers and expiries
}

// A box is one sandbox.
type box struct {
	mu    sync.Mutex // one command at a time
	rec   record
	gone  bool
	timer Timer
	watch *watch

	seen   sync.Mutex // guards status, so that Get never waits for a command
	status Status
}

// New prepares the state directory and the control groups. It starts nothing and touches no sandbox: call Adopt or
// Purge next.
func New(c Config) (*Node, error) {
	for name, missing := range map[string]bool{
		"Driver": c.Driver == nil, "Network": c.Network == nil, "Firewall": c.Firewall == nil, "Wire": c.Wire == nil,
		"Images": c.Images == nil, "Cgroups": c.Cgroups == nil, "Instance": c.Instance == "", "Init": c.Init == "",
	} {
		if missing {
			return nil, fmt.Errorf("node: config has no %s", name)
		}
	}
	if c.Events == nil {
		c.Events = func(Event) {}
	}
	if c.Clock == nil {
		c.Clock = realClock{}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Grace == 0 {
		c.Grace = 2 * time.Minute
	}
	if err := CheckState(c.StateDir); err != nil {
		return nil, err
	}
	n := &Node{c: c, dirs: dirs{c.StateDir}, boxes: make(map[string]*box)}
	if err := n.dirs.make(); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	var err error
	if n.guest, err = installPrograms(n.dirs.guest(), c.Init, c.Probe); err != nil {
		return nil, fmt.Errorf("node: installing the programs of sandboxes: %w", err)
	}
	if err := c.Cgroups.Prepare(); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	return n, nil
}

// Close stops watching and waits for what runs by itself. Sandboxes go on; Adopt finds them again.
func (n *Node) Close() {
	n.mu.Lock()
	n.closed = true
	boxes := n.all()
	n.mu.Unlock()
	for _, b := range boxes {
		b.mu.Lock()
		b.unwatch()
		b.mu.Unlock()
	}
	n.wg.Wait()
}

// Get returns what the node knows of a sandbox, or ErrUnknown.
func (n *Node) Get(sandbox string) (Status, error) {
	n.mu.Lock()
	b := n.boxes[sandbox]
	n.mu.Unlock()
	if b == nil {
		return Status{}, fmt.Errorf("sandbox %q: %w", sandbox, ErrUnknown)
	}
	return b.seenStatus(), nil
}

// Settled is Get once whatever is being done to the sandbox is done: in the middle of a resume it is still shown as paused, and as
// its next generation already.
func (n *Node) Settled(sandbox string) (Status, error) {
	b, err := n.lock(sandbox)
	if err != nil {
		return Status{}, err
	}
	defer b.mu.Unlock()
	return b.rec.status(), nil
}

// List returns all sandboxes, by id.
func (n *Node) List() []Status {
	n.mu.Lock()
	boxes := n.all()
	n.mu.Unlock()
	list := make([]Status, 0, len(boxes))
	for _, b := range boxes {
		list = append(list, b.seenStatus())
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Sandbox, b.Sandbox) })
	return list
}

// all returns the boxes; n.mu is held.
func (n *Node) all() []*box {
	boxes := make([]*box, 0, len(n.boxes))
	for _, b := range n.boxes {
		boxes = append(boxes, b)
	}
	return boxes
}

// lock returns the box of a sandbox, locked, or ErrUnknown.
func (n *Node) lock(sandbox string) (*box, error) {
	n.mu.Lock()
	b, closed := n.boxes[sandbox], n.closed
	n.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	if b == nil {
		return nil, fmt.Errorf("sandbox %q: %w", sandbox, ErrUnknown)
	}
	b.mu.Lock()
	if b.gone {
		b.mu.Unlock()
		return nil, fmt.Errorf("sandbox %q: %w", sandbox, ErrUnknown)
	}
	return b, nil
}

// forget takes a removed box out of the table; b.mu is held.
func (n *Node) forget(b *box) {
	b.gone = true
	n.mu.Lock()
	if n.boxes[b.rec.Spec.Sandbox] == b {
		delete(n.boxes, b.rec.Spec.Sandbox)
	}
	n.mu.Unlock()
}

// spawn runs f in a goroutine that Close waits for.
func (n *Node) spawn(f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.wg.Go(f)
	}
}

// alone is a context for work that must be finished although its caller may have gone.
func (n *Node) alone(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), n.c.Grace)
}

func (n *Node) emit(b *box, kind, reason EventKind) {
	s := b.rec.Spec
	n.c.Events(Event{Kind: kind, Sandbox: s.Sandbox, Org: s.Org, Incarnation: s.Incarnation, Generation: s.Generation,
		At: n.c.Clock.Now().UTC(), Reason: reason})
}

func (b *box) seenStatus() Status {
	b.seen.Lock()
	defer b.seen.Unlock()
	return b.status
}

// save writes the record and shows it; b.mu is held.
func (n *Node) save(b *box) error {
	b.show()
	if err := n.dirs.save(b.rec); err != nil {
		return fmt.Errorf("recording sandbox %q: %w", b.rec.Spec.Sandbox, err)
	}
	return nil
}

func (b *box) show() {
	b.seen.Lock()
	b.status = b.rec.status()
	b.seen.Unlock()
}

// errLeft says that something could not be removed.
var errLeft = errors.New("not all of the sandbox could be removed")
