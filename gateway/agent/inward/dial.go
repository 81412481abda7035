package inward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/gateway/link"
	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes/guest"
)

// connectLimit is how long a sandbox may take to accept: its network stack answers at once, or is paused.
const connectLimit = 5 * time.Second

// registerIngress is what ingress may ask.
func (i *Inward) registerIngress(mux *link.Mux) {
	link.HandleFiles(mux, role.InwardDial, func(ctx context.Context, r role.DialRequest, files []*os.File) (struct{}, []*os.File, error) {
		for _, f := range files {
			f.Close()
		}
		socket, err := i.dial(ctx, r)
		if err != nil {
			return struct{}{}, nil, err
		}
		return struct{}{}, []*os.File{socket}, nil
	})
}

// dial connects to a port of a sandbox at the generation that the route names, and only there.
func (i *Inward) dial(ctx context.Context, r role.DialRequest) (*os.File, error) {
	at, session, ok := i.target(r.Sandbox)
	if !ok {
		return nil, &link.Error{Code: role.CodeUnknown, Message: fmt.Sprintf("sandbox %q is not bound", r.Sandbox)}
	}
	if at.Generation != r.Generation || r.Port == 0 {
		return nil, &link.Error{Code: role.CodeStaleRoute, Message: fmt.Sprintf("sandbox %q runs as generation %d, not %d", r.Sandbox, at.Generation, r.Generation)}
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	d := net.Dialer{}
	d.SetMultipathTCP(false)
	conn, err := d.DialContext(ctx, "tcp4", netip.AddrPortFrom(at.Addr, r.Port).String())
	if errors.Is(err, syscall.ECONNREFUSED) {
		return relay(ctx, session, r)
	}
	if err != nil {
		return nil, fmt.Errorf("dialing port %d of %q: %w", r.Port, r.Sandbox, err)
	}
	defer conn.Close()
	return conn.(*net.TCPConn).File()
}

// target is what stands behind a sandbox's name now. A node that was started anew may change it at any time.
func (i *Inward) target(sandbox string) (egress.Binding, *guest.Session, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	b := i.boxes[sandbox]
	if b == nil {
		return egress.Binding{}, nil, false
	}
	return b.binding, b.session, true
}

// relay connects to an application that listens only on loopback, by way of the sandbox's init.
func relay(ctx context.Context, session *guest.Session, r role.DialRequest) (*os.File, error) {
	inside, err := session.Relay(ctx, r.Port)
	if errors.Is(err, guest.ErrRefused) {
		return nil, &link.Error{Code: role.CodePortClosed, Message: fmt.Sprintf("nothing listens on port %d of %q", r.Port, r.Sandbox)}
	}
	if err != nil {
		return nil, fmt.Errorf("reaching port %d of %q on loopback: %w", r.Port, r.Sandbox, err)
	}
	ours, theirs, err := link.Pair()
	if err != nil {
		inside.Close()
		return nil, err
	}
	outside, err := link.Socket(ours)
	if err != nil {
		inside.Close()
		theirs.Close()
		return nil, err
	}
	go join(inside, outside)
	return theirs, nil
}

// A halfCloser can end one direction.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// join carries bytes both ways until both are done.
func join(inside net.Conn, outside *net.UnixConn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(outside, inside)
		outside.CloseWrite()
	}()
	io.Copy(inside, outside)
	if h, ok := inside.(halfCloser); ok {
		h.CloseWrite()
	}
	<-done
	inside.Close()
	outside.Close()
}
