package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"portreeve.dev/gateway/link"
)

// SupervisorFile is the descriptor at which a child finds its socket to the supervisor.
const SupervisorFile = 3

// A Spec is what a role does in each part of its life.
type Spec struct {
	// Start sets the process up and returns once it serves. What it returns goes to the supervisor.
	// Its ctx ends with the process.
	Start func(ctx context.Context, config json.RawMessage, files []*os.File) (ready any, out []*os.File, err error)
	// Stop ends the work in hand; nil means that there is none. Its ctx carries the supervisor's deadline.
	Stop func(ctx context.Context) error
	// Siblings are the processes that this one talks to, by role.
	Siblings map[string]*Sibling
}

// A Sibling is another process and what it may ask of this one.
type Sibling struct {
	link.Peer
	Mux    *link.Mux
	Limits link.Limits
	// Up runs at each new link, in a goroutine of its own; nil does nothing. Its ctx ends with the link.
	Up func(ctx context.Context, conn *link.Conn)
}

// Start is the supervisor's first message.
type Start struct {
	Config json.RawMessage `json:"config"`
}

// Ready is the answer to Start.
type Ready struct {
	Body json.RawMessage `json:"body,omitempty"`
}

// Peer names the sibling whose socket comes along, or in a notice "lost" the one whose link ended. Serial is the supervisor's
// number for the pair of sockets.
type Peer struct {
	Name   string `json:"name"`
	Serial uint64 `json:"serial"`
}

// Run lives the life of spec over file 3 until the supervisor says stop or is gone.
func Run(ctx context.Context, spec Spec) error {
	socket, err := link.Socket(os.NewFile(SupervisorFile, "supervisor"))
	if err != nil {
		return fmt.Errorf("this command is started by the supervisor (portreeve dev or serve): %w", err)
	}
	if err := keepMemory(); err != nil {
		return err
	}
	return RunOn(ctx, socket, spec)
}

// keepMemory makes sure that what this process holds (keys, values, what passes through) gets onto no disk when it crashes,
// and to no other process of its uid.
func keepMemory() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbidding core dumps: %w", err)
	}
	if os.Geteuid() == 0 {
		return nil // its children would be hidden from it
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("forbidding to be looked into: %w", err)
	}
	return nil
}

// RunOn is Run over any socket.
func RunOn(ctx context.Context, socket *net.UnixConn, spec Spec) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &process{spec: spec, ctx: ctx, end: cancel}
	conn := link.NewConn(socket, p.mux(), link.Limits{})
	p.supervisor = conn
	err := conn.Run(ctx)
	cancel()
	p.links.Wait()
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

type process struct {
	spec  Spec
	ctx   context.Context
	end   context.CancelFunc
	links sync.WaitGroup

	supervisor *link.Conn
}

func (p *process) mux() *link.Mux {
	mux := link.NewMux()
	link.HandleFiles(mux, "start", func(_ context.Context, in Start, files []*os.File) (Ready, []*os.File, error) {
		body, out, err := p.spec.Start(p.ctx, in.Config, files)
		if err != nil {
			return Ready{}, nil, err
		}
		raw, err := json.Marshal(body)
		return Ready{raw}, out, err
	})
	link.HandleFiles(mux, "peer", func(_ context.Context, in Peer, files []*os.File) (struct{}, []*os.File, error) {
		return struct{}{}, nil, p.meet(in, files)
	})
	link.Handle(mux, "stop", func(ctx context.Context, _ struct{}) (struct{}, error) {
		if p.spec.Stop == nil {
			return struct{}{}, nil
		}
		return struct{}{}, p.spec.Stop(ctx)
	})
	return mux
}

// meet takes the socket of a sibling as the new link to it.
func (p *process) meet(peer Peer, files []*os.File) error {
	sibling := p.spec.Siblings[peer.Name]
	if sibling == nil || len(files) != 1 {
		for _, f := range files {
			f.Close()
		}
		return fmt.Errorf("meeting %q with %d files: unknown here", peer.Name, len(files))
	}
	socket, err := link.Socket(files[0])
	if err != nil {
		return err
	}
	conn := link.NewConn(socket, sibling.Mux, sibling.Limits)
	p.links.Add(1)
	go p.talk(sibling, peer, conn)
	return nil
}

func (p *process) talk(sibling *Sibling, peer Peer, conn *link.Conn) {
	defer p.links.Done()
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	sibling.Set(conn)
	var up sync.WaitGroup
	if sibling.Up != nil {
		up.Go(func() { sibling.Up(ctx, conn) })
	}
	conn.Run(ctx)
	if sibling.Drop(conn) && p.ctx.Err() == nil {
		// The sibling may live: then the supervisor brings the two together again.
		p.supervisor.Notify("lost", peer)
	}
	cancel()
	up.Wait()
}
