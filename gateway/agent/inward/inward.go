package inward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/agent/cage"
	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes/guest"
)

// An Inward is the state of the process.
type Inward struct {
	log   *slog.Logger
	ctx   context.Context // of the process; set by start, before any link
	caged atomic.Bool
	// control is told of sandboxes that broke the protocol.
	control *child.Sibling

	mu      sync.Mutex
	boxes   map[string]*box // by sandbox
	changed chan struct{}   // closed when a box came
}

// A box is one bound sandbox. It never changes: a later generation has a new one with the same session.
type box struct {
	binding egress.Binding
	session *guest.Session
	end     context.CancelFunc
}

// Run is the life of the process.
func Run(ctx context.Context) error {
	i := newInward(slog.New(slog.NewJSONHandler(os.Stderr, nil)))
	return child.Run(ctx, child.Spec{Start: i.start, Siblings: i.siblings()})
}

// siblings are those that the process talks to, with what each may ask.
func (i *Inward) siblings() map[string]*child.Sibling {
	node := &child.Sibling{Mux: link.NewMux()}
	// A call of ingress's is a dial, which a sandbox can let wait: so many that some sandboxes at their own bound don't take them all.
	ingress := &child.Sibling{Mux: link.NewMux(), Limits: link.Limits{Calls: 4096}}
	i.registerNode(node.Mux)
	i.registerControl(i.control.Mux)
	i.registerIngress(ingress.Mux)
	return map[string]*child.Sibling{"node": node, "control": i.control, "ingress": ingress}
}

func newInward(log *slog.Logger) *Inward {
	return &Inward{log: log, ctx: context.Background(), control: &child.Sibling{Mux: link.NewMux(), Limits: link.Limits{Calls: 4096}},
		boxes: make(map[string]*box), changed: make(chan struct{})}
}

func (i *Inward) start(ctx context.Context, raw json.RawMessage, _ []*os.File) (any, []*os.File, error) {
	var start role.InwardStart
	if err := json.Unmarshal(raw, &start); err != nil {
		return nil, nil, err
	}
	i.ctx = ctx
	report, err := cage.Enter(cage.Config{Role: cage.Inward, InsecureWithoutLandlock: start.Uncaged})
	if err != nil {
		return nil, nil, err
	}
	if err := report.SelfCheck(); err != nil {
		return nil, nil, err
	}
	i.caged.Store(true)
	i.log.Info("inward serves", "landlock_abi", report.LandlockABI)
	return role.Caged{LandlockABI: report.LandlockABI, Checked: report.Checked}, nil, nil
}

func (i *Inward) registerNode(mux *link.Mux) {
	link.HandleFiles(mux, role.InwardBind, func(_ context.Context, b egress.Binding, files []*os.File) (struct{}, []*os.File, error) {
		return struct{}{}, nil, i.bind(b, files)
	})
	link.Handle(mux, role.InwardSync, func(_ context.Context, k role.InwardKeep) (struct{}, error) {
		i.keep(k.Sandboxes)
		return struct{}{}, nil
	})
	link.Handle(mux, role.InwardUnbind, func(_ context.Context, r role.SandboxRef) (struct{}, error) {
		i.unbind(r.Sandbox)
		return struct{}{}, nil
	})
}

func (i *Inward) registerControl(mux *link.Mux) {
	link.Handle(mux, role.InwardReady, func(ctx context.Context, r role.SandboxRef) (struct{}, error) {
		return struct{}{}, i.ready(ctx, r.Sandbox)
	})
	link.HandleFiles(mux, role.InwardOperation, func(_ context.Context, r role.SandboxRef, files []*os.File) (struct{}, []*os.File, error) {
		return struct{}{}, nil, i.operation(r.Sandbox, files)
	})
}

// bind takes the listener that the sandbox's init dials, in place of an earlier one. A node that was started anew brings a new
// one for the same sandbox: what runs in it goes on.
func (i *Inward) bind(b egress.Binding, files []*os.File) error {
	if len(files) == 0 {
		return i.regenerate(b)
	}
	if !i.caged.Load() || len(files) != 1 {
		for _, f := range files {
			f.Close()
		}
		return fmt.Errorf("binding %q with %d files: inward takes one, once it is in its cage", b.Sandbox, len(files))
	}
	listener, err := net.FileListener(files[0])
	files[0].Close()
	if err != nil {
		return fmt.Errorf("binding %q: %w", b.Sandbox, err)
	}
	if i.rebind(b, listener) {
		return nil
	}
	i.unbind(b.Sandbox)
	ctx, cancel := context.WithCancel(i.ctx)
	s := guest.NewSession(guest.Config{Sandbox: b.Sandbox, Log: i.log})
	i.mu.Lock()
	i.boxes[b.Sandbox] = &box{b, s, cancel}
	close(i.changed)
	i.changed = make(chan struct{})
	i.mu.Unlock()
	go i.serve(ctx, b, s, listener)
	return nil
}

// regenerate notes that a bound sandbox goes on as a later generation.
func (i *Inward) regenerate(b egress.Binding) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	old := i.boxes[b.Sandbox]
	if old == nil || old.binding.Incarnation != b.Incarnation {
		return fmt.Errorf("sandbox %q is not bound as incarnation %d", b.Sandbox, b.Incarnation)
	}
	i.boxes[b.Sandbox] = &box{b, old.session, old.end}
	return nil
}

func (i *Inward) rebind(b egress.Binding, l net.Listener) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	known := i.boxes[b.Sandbox]
	if known == nil || known.binding.Incarnation != b.Incarnation {
		return false
	}
	i.boxes[b.Sandbox] = &box{b, known.session, known.end}
	known.session.Replace(l) // one that has ended for good stays ended
	return true
}

func (i *Inward) serve(ctx context.Context, b egress.Binding, s *guest.Session, l net.Listener) {
	err := s.Serve(ctx, l)
	if err == nil {
		return
	}
	i.log.Warn("a sandbox's init is not heard any more", "sandbox", b.Sandbox, "err", err)
	// Such a sandbox is of no use to anybody. One that nobody tells of ends with its time.
	if conn := i.control.Now(); conn != nil && errors.Is(err, guest.ErrHostile) {
		conn.Notify(role.InwardHostile, role.Event{Sandbox: b.Sandbox, Incarnation: b.Incarnation, Generation: b.Generation})
	}
}

func (i *Inward) unbind(sandbox string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if b := i.boxes[sandbox]; b != nil {
		b.end()
		delete(i.boxes, sandbox)
	}
}

// keep forgets every sandbox but these.
func (i *Inward) keep(sandboxes []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for id, b := range i.boxes {
		if !slices.Contains(sandboxes, id) {
			b.end()
			delete(i.boxes, id)
		}
	}
}

func (i *Inward) find(sandbox string) (*box, <-chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.boxes[sandbox], i.changed
}

// ready waits for the sandbox's init. The sandbox may be bound only in a moment: after a restart the node is asked last.
func (i *Inward) ready(ctx context.Context, sandbox string) error {
	for {
		b, changed := i.find(sandbox)
		var ended <-chan struct{}
		if b != nil {
			changed, ended = b.session.Ready(), b.session.Ended()
		}
		select {
		case <-changed:
			if b != nil {
				return nil
			}
		case <-ended:
			return fmt.Errorf("waiting for the init of %q: it is not heard any more", sandbox)
		case <-ctx.Done():
			return fmt.Errorf("waiting for the init of %q: %w", sandbox, ctx.Err())
		}
	}
}

// operation carries one operation of control between the socket that came along and the sandbox's init.
func (i *Inward) operation(sandbox string, files []*os.File) error {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	b, _ := i.find(sandbox)
	if b == nil {
		return &link.Error{Code: role.CodeUnknown, Message: fmt.Sprintf("sandbox %q is not bound", sandbox)}
	}
	if len(files) != 1 {
		return errors.New("an operation comes with one socket")
	}
	conn, err := net.FileConn(files[0])
	if err != nil {
		return fmt.Errorf("operation in %q: %w", sandbox, err)
	}
	go func() {
		if err := guest.ServeOperation(i.ctx, conn, b.session); err != nil {
			i.log.Info("an operation ended early", "sandbox", sandbox, "err", err)
		}
	}()
	return nil
}
