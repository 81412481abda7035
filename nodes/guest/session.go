package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"portreeve.dev/nodes/guest/frame"
)

// Session is the host's side of one sandbox's init. All of it is safe for concurrent use.
//
// It has a main connection or not:
//
//	waiting --Hello--> ready --end, or garbage--> waiting
//	   |                 |  \--Hello on another connection: that one becomes the main one
//	   +---- ctx done, or Limits.Strikes breaches ---> ended, for good
type Session struct {
	cfg  Config
	done chan struct{} // closed at the end

	mu      sync.Mutex
	ln      net.Listener
	main    net.Conn
	hello   frame.HelloMessage
	ready   chan struct{} // closed while main is set
	ended   error
	strikes int
	last    uint64             // number of the newest stream
	waiting map[uint64]*waiter // streams that init was asked for
	held    map[*Stream]bool   // streams that are open
	unknown map[net.Conn]bool  // connections that have not said what they are
	slots   int                // waiting and held, Limits.Streams at most
	own     sync.WaitGroup     // goroutines of connections
	pending chan struct{}      // one taken per unknown connection
	send    sync.Mutex         // one Open at a time
}

// NewSession returns a Session that accepts nothing before Serve.
func NewSession(cfg Config) *Session {
	cfg = cfg.withDefaults()
	return &Session{
		cfg: cfg, done: make(chan struct{}), ready: make(chan struct{}),
		waiting: make(map[uint64]*waiter), held: make(map[*Stream]bool), unknown: make(map[net.Conn]bool),
		pending: make(chan struct{}, cfg.Limits.Pending),
	}
}

// Ready returns a channel that is closed while an init is connected. After a loss the next call returns a new channel.
func (s *Session) Ready() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

// Ended is closed when the session has ended, for good.
func (s *Session) Ended() <-chan struct{} { return s.done }

// Hello returns what the connected init said of itself.
func (s *Session) Hello() (frame.HelloMessage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hello, s.main != nil
}

// Serve accepts the connections of one sandbox's init and closes the listener and all connections at its end.
// It returns nil after ctx is done, a HostileError after too many breaches. It runs once.
func (s *Session) Serve(ctx context.Context, ln net.Listener) error {
	stop := context.AfterFunc(ctx, func() { s.end(context.Canceled) })
	defer stop()
	s.Replace(ln)
	err := s.accept()
	s.end(err)
	s.own.Wait()
	if ctx.Err() != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Replace goes on with another listener, as when the node was started anew. What is connected stays connected.
func (s *Session) Replace(ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		ln.Close()
		return
	}
	if s.ln != nil {
		s.ln.Close()
	}
	s.ln = ln
}

func (s *Session) listener() net.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ln
}

// accept takes connections no faster than Limits.Accepts and holds Limits.Pending at most: a flood waits in its own queue.
func (s *Session) accept() error {
	rate := newPace(s.cfg.Limits.Accepts, time.Now())
	for {
		select {
		case s.pending <- struct{}{}:
		case <-s.done:
			return context.Canceled
		}
		if rest := rate.take(time.Now()); rest > 0 && !s.sleep(rest) {
			return context.Canceled
		}
		ln := s.listener()
		if ln == nil { // ended before it began
			return context.Canceled
		}
		conn, err := ln.Accept()
		if err != nil {
			<-s.pending
			if errors.Is(err, net.ErrClosed) && ln != s.listener() {
				continue
			}
			if errors.Is(err, net.ErrClosed) || !s.sleep(100*time.Millisecond) {
				return fmt.Errorf("accepting init's connections: %w", err)
			}
			s.cfg.Log.Warn("init connection not accepted", "err", err)
			continue
		}
		if !s.enter(conn) {
			conn.Close()
			return context.Canceled
		}
		s.own.Go(func() { s.greet(conn) })
	}
}

func (s *Session) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.done:
		return false
	}
}

func (s *Session) enter(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return false
	}
	s.unknown[conn] = true
	return true
}

// greet reads the first frame and makes the connection what it says it is, or closes it.
func (s *Session) greet(conn net.Conn) {
	conn.SetReadDeadline(time.Now().Add(s.cfg.Limits.Opening))
	r := frame.NewReader(conn)
	t, payload, err := r.Next(frame.MaxOpening)
	keep := false
	if err == nil {
		switch t {
		case frame.Hello:
			keep, err = s.setMain(conn, payload)
		case frame.Stream:
			keep, err = s.deliver(conn, r, payload)
		default:
			err = fmt.Errorf("%w: %s as first frame", frame.ErrFormat, t)
		}
	}
	s.mu.Lock()
	delete(s.unknown, conn)
	s.mu.Unlock()
	<-s.pending
	if errors.Is(err, frame.ErrFormat) {
		s.strike(err)
	}
	if !keep {
		conn.Close()
		return
	}
	if t == frame.Hello {
		s.follow(conn, r)
	}
}

// setMain makes conn the main connection. The older one is closed: after a restore it may be there still, but nobody holds its other end.
func (s *Session) setMain(conn net.Conn, payload []byte) (bool, error) {
	hello, err := frame.Decode[frame.HelloMessage](payload)
	if err != nil {
		return false, err
	}
	if hello.Version != frame.Version {
		s.cfg.Log.Warn("init of another version refused", "version", hello.Version)
		return false, nil
	}
	conn.SetReadDeadline(time.Time{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return false, nil
	}
	if s.main != nil {
		s.main.Close()
	} else {
		close(s.ready)
	}
	s.main, s.hello = conn, hello
	return true, nil
}

// follow waits for the end of the main connection, on which init has nothing more to say.
func (s *Session) follow(conn net.Conn, r *frame.Reader) {
	t, _, err := r.Next(frame.MaxOpening)
	if err == nil {
		err = fmt.Errorf("%w: %s on the main connection", frame.ErrFormat, t)
	}
	conn.Close()
	s.mu.Lock()
	if s.main == conn {
		s.main = nil
		s.ready = make(chan struct{})
	}
	s.mu.Unlock()
	if errors.Is(err, frame.ErrFormat) { // an end inside a frame is none: a checkpoint may do that
		s.strike(err)
	}
}

// strike counts a breach. An init of ours never breaks the protocol, so there is no forgiveness with time.
func (s *Session) strike(what error) {
	hostile := &HostileError{Sandbox: s.cfg.Sandbox, What: what}
	s.mu.Lock()
	s.strikes++
	over := s.strikes >= s.cfg.Limits.Strikes
	s.mu.Unlock()
	s.cfg.Log.Warn("init broke the protocol", "err", what)
	if over {
		s.end(hostile)
	}
}

// end closes everything of the session, once.
func (s *Session) end(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return
	}
	s.ended = why
	close(s.done)
	if s.ln != nil {
		s.ln.Close()
	}
	if s.main != nil {
		s.main.Close()
	}
	for conn := range s.unknown {
		conn.Close()
	}
	for stream := range s.held {
		stream.Conn.Close()
	}
}
