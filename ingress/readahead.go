package ingress

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// aheadSize is how much of a body is read while its request is held.
const aheadSize = 64 << 10

// A readAhead reads a body while its request is held. Only by reading does the server notice a client that leaves; and a
// body that arrives meanwhile need not be waited for later. It reads at most aheadSize.
type readAhead struct {
	body io.Reader
	done chan struct{} // closed when nothing more is read ahead

	mu   sync.Mutex
	held []byte // read, and not yet taken
	err  error
	stop bool
}

// readBody begins. It leaves a body alone that the client has yet to be asked for: asking would make it send all of it.
func readBody(w http.ResponseWriter, r *http.Request) *readAhead {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody || r.Header["Expect"] != nil {
		return nil
	}
	if r.ProtoMajor == 1 {
		// Else an answer would wait for the body that is being read here.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	a := &readAhead{body: r.Body, done: make(chan struct{})}
	go a.run()
	return a
}

// run is the goroutine that reads ahead.
func (a *readAhead) run() {
	defer close(a.done)
	buf := make([]byte, 4<<10)
	for {
		n, err := a.body.Read(buf)
		a.mu.Lock()
		a.held = append(a.held, buf[:n]...)
		a.err = err
		stop := err != nil || a.stop || len(a.held) >= aheadSize
		a.mu.Unlock()
		if stop {
			return
		}
	}
}

// Read gives what was read ahead, then the rest. The first call ends reading ahead.
func (a *readAhead) Read(p []byte) (int, error) {
	a.mu.Lock()
	a.stop = true
	if len(a.held) > 0 {
		n := copy(p, a.held)
		a.held = a.held[n:]
		a.mu.Unlock()
		return n, nil
	}
	a.mu.Unlock()
	<-a.done
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.held) > 0 {
		n := copy(p, a.held)
		a.held = a.held[n:]
		return n, nil
	}
	if a.err != nil {
		return 0, a.err
	}
	return a.body.Read(p)
}

// release waits until nobody reads the body any more: the server takes it back when its handler returns.
func (a *readAhead) release(w http.ResponseWriter) {
	if a == nil {
		return
	}
	a.mu.Lock()
	a.stop = true
	a.mu.Unlock()
	select {
	case <-a.done:
	default:
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
		<-a.done
	}
}
