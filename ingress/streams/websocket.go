package streams

import (
	"bufio"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// How long an end may take.
const (
	frameGrace = time.Second     // for the app to finish a frame that it has begun
	closeGrace = 2 * time.Second // for the client to take our close frame and answer it
	halfGrace  = 5 * time.Second // for the other direction, when one has ended by itself
)

// An End is one side of a WebSocket: what to write to, and what to read from, which may have bytes in advance.
type End struct {
	Conn   net.Conn
	Reader *bufio.Reader
}

// A socket is a WebSocket under way.
type socket struct {
	client, app End
	done        chan struct{} // closed at the end
	ending      atomic.Uint32 // the Reason, once an end was asked for

	mu     sync.Mutex // held while the client is written to
	frames scanner
	told   bool // no more of the app's bytes go to the client

	life sync.Mutex // never held for long
	over bool
	wg   sync.WaitGroup // goroutines; none is added once over is set
}

// Carry carries bytes both ways until either side ends or the stream is ended, and closes both connections.
func Carry(s *Stream, client, app End) {
	w := &socket{client: client, app: app, done: make(chan struct{})}
	s.OnEnd(w.end)
	up := make(chan struct{})
	w.wg.Add(1)
	go w.toApp(up)
	w.toClient()
	w.settle(up)
	w.life.Lock()
	w.over = true
	w.life.Unlock()
	close(w.done)
	client.Conn.Close()
	app.Conn.Close()
	<-up
	w.wg.Wait()
}

// toApp is the goroutine that carries what the client sends. After an end was asked for it waits for the client's close
// frame: a connection that is closed with bytes unread is reset, and our close frame would be lost with it.
func (w *socket) toApp(up chan<- struct{}) {
	defer w.wg.Done()
	defer close(up)
	open := true
	_ = pump(w.client.Reader, func(b []byte) bool {
		if open {
			_, err := w.app.Conn.Write(b)
			open = err == nil
		}
		return true
	})
	closeWrite(w.app.Conn)
}

// toClient carries what the app sends, until it ends or an end was asked for.
func (w *socket) toClient() {
	if pump(w.app.Reader, w.send) == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending.Load() != 0 {
		w.tell()
	}
}

// pump gives what it reads to use until that says no more; then it returns nil, else why reading ended. While nothing
// comes it holds no buffer but the reader's own: most WebSockets are idle most of the time.
func pump(r *bufio.Reader, use func([]byte) bool) error {
	for {
		if _, err := r.Peek(1); err != nil {
			return err
		}
		n := r.Buffered()
		b, _ := r.Peek(n)
		if !use(b) {
			return nil
		}
		_, _ = r.Discard(n)
		if n < r.Size() {
			continue
		}
		if more, err := bulk(r, use); !more || err != nil {
			return err
		}
	}
}

// bulk carries what comes in quick succession through a larger buffer.
func bulk(r *bufio.Reader, use func([]byte) bool) (more bool, err error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		n, err := r.Read(*buf)
		if n > 0 && !use((*buf)[:n]) {
			return false, nil
		}
		if err != nil || n < len(*buf)/2 {
			return true, err
		}
	}
}

// send writes bytes of the app; false when there will be no more.
func (w *socket) send(b []byte) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.told {
		return false
	}
	whole := w.frames.advance(b)
	ending := w.ending.Load() != 0
	if ending && whole > 0 {
		b = b[:whole]
		w.frames.have, w.frames.left = 0, 0
	}
	if _, err := w.client.Conn.Write(b); err != nil {
		w.told = true
		return false
	}
	if ending {
		w.tell()
	}
	return !w.told
}

// tell writes the close frame if it can stand here. The caller holds mu.
func (w *socket) tell() {
	if w.told || !w.frames.between() {
		return
	}
	w.told = true
	if !w.frames.closed {
		_, _ = w.client.Conn.Write(closeFrame(Reason(w.ending.Load())))
	}
	closeWrite(w.client.Conn)
}

// end is the stream's end function: it asks, and returns.
func (w *socket) end(why Reason) {
	w.life.Lock()
	defer w.life.Unlock()
	if w.over {
		return
	}
	// Whoever writes to the client now must let go of mu within the grace.
	_ = w.client.Conn.SetWriteDeadline(time.Now().Add(closeGrace))
	w.ending.Store(uint32(why))
	w.wg.Add(1)
	go w.finish()
}

// finish is the goroutine of an end.
func (w *socket) finish() {
	defer w.wg.Done()
	w.mu.Lock()
	w.tell()
	told := w.told
	w.mu.Unlock()
	if !told {
		// The app is in the middle of a frame.
		grace := time.NewTimer(frameGrace)
		defer grace.Stop()
		select {
		case <-grace.C:
		case <-w.done:
		}
	}
	w.app.Conn.Close()
	_ = w.client.Conn.SetReadDeadline(time.Now().Add(closeGrace))
}

// settle gives the other direction time after toClient is done.
func (w *socket) settle(up <-chan struct{}) {
	grace := halfGrace
	if w.ending.Load() != 0 {
		grace = closeGrace
	} else {
		closeWrite(w.client.Conn)
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-up:
	case <-timer.C:
	}
}

func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite()
	}
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 32<<10); return &b }}
