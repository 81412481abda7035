package attach

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// dialLimit is how long a connection waits for an edge that is being started again.
const dialLimit = 3 * time.Second

// A relay copies what comes to the listeners in the namespace to the sandbox's socket.
type relay struct {
	socket  string
	slots   chan struct{}
	running sync.WaitGroup

	mu    sync.Mutex
	ended bool
	open  map[net.Conn]struct{}
}

func (r *relay) serve(l net.Listener) {
	for {
		nc, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors
			continue
		}
		select {
		case r.slots <- struct{}{}:
			r.running.Go(func() {
				defer func() { <-r.slots }()
				r.copy(nc)
			})
		default:
			nc.Close()
		}
	}
}

// keep notes a connection, so that end closes it; false when it is over.
func (r *relay) keep(nc net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return false
	}
	if r.open == nil {
		r.open = make(map[net.Conn]struct{})
	}
	r.open[nc] = struct{}{}
	return true
}

func (r *relay) drop(nc net.Conn) {
	r.mu.Lock()
	delete(r.open, nc)
	r.mu.Unlock()
	nc.Close()
}

// end closes everything and waits.
func (r *relay) end() {
	r.mu.Lock()
	r.ended = true
	for nc := range r.open {
		nc.Close()
	}
	r.mu.Unlock()
	r.running.Wait()
}

func (r *relay) copy(inside net.Conn) {
	defer inside.Close()
	out, err := r.dial()
	if err != nil {
		return
	}
	if !r.keep(inside) || !r.keep(out) {
		out.Close()
		return
	}
	defer r.drop(inside)
	defer r.drop(out)
	var wg sync.WaitGroup
	wg.Go(func() { half(out, inside) })
	half(inside, out)
	wg.Wait()
}

// dial connects to the socket; an edge that was started again is there in a moment.
func (r *relay) dial() (net.Conn, error) {
	until := time.Now().Add(dialLimit)
	for {
		nc, err := net.DialTimeout("unix", r.socket, dialLimit)
		r.mu.Lock()
		ended := r.ended
		r.mu.Unlock()
		if err == nil || ended || time.Now().After(until) {
			return nc, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// half copies one way and passes the end on. After an error nothing more comes either way.
func half(dst, src net.Conn) {
	if _, err := io.Copy(dst, src); err != nil {
		dst.Close()
		src.Close()
		return
	}
	if c, ok := dst.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
}
