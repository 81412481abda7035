package streams

import (
	"errors"
	"sync"
	"time"

	"portreeve.dev/ingress/route"
)

// Why a stream is not opened.
var (
	ErrFull  = errors.New("too many requests are open through this tunnel")
	ErrEnded = errors.New("the tunnel ended, or changed, meanwhile")
)

// Config of an Index.
type Config struct {
	Limit int              // streams per tunnel; default 2048
	Now   func() time.Time // default time.Now
}

// An Index knows all open streams. It is safe for concurrent use.
type Index struct {
	cfg Config

	mu      sync.Mutex
	tunnels map[string]*tunnel // by id; kept from the first stream until the tunnel is gone
	closed  bool
}

type tunnel struct {
	streams map[*Stream]struct{}
	expires time.Time
	timer   *time.Timer
}

// A Stream is one request, or one WebSocket.
type Stream struct {
	index      *Index
	tunnel     string
	generation uint64
	epoch      uint64
	public     bool

	// Guarded by index.mu.
	end   func(Reason)
	ended Reason
}

// New returns an empty Index.
func New(c Config) *Index {
	if c.Limit == 0 {
		c.Limit = 2048
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Index{cfg: c, tunnels: make(map[string]*tunnel)}
}

// Open notes a stream to the generation, admitted as rec says. end is called at most once, must not block and may be called
// before Open returns. The caller looks at the route once more afterwards: it may have changed before the stream was known.
func (x *Index) Open(rec *route.Record, generation uint64, end func(Reason)) (*Stream, error) {
	s := &Stream{index: x, tunnel: rec.Tunnel, generation: generation, epoch: rec.AuthEpoch, public: rec.Public, end: end}
	x.mu.Lock()
	defer x.mu.Unlock()
	left := rec.ExpiresAt.Sub(x.cfg.Now())
	if x.closed || left <= 0 {
		return nil, ErrEnded
	}
	t := x.tunnels[rec.Tunnel]
	if t == nil {
		t = &tunnel{streams: make(map[*Stream]struct{}), expires: rec.ExpiresAt}
		t.timer = time.AfterFunc(left, func() { x.expire(rec.Tunnel, t) })
		x.tunnels[rec.Tunnel] = t
	}
	if len(t.streams) >= x.cfg.Limit {
		return nil, ErrFull
	}
	t.streams[s] = struct{}{}
	return s, nil
}

// OnEnd replaces what ends the stream. If it has ended already, end is called at once.
func (s *Stream) OnEnd(end func(Reason)) {
	s.index.mu.Lock()
	s.end = end
	ended := s.ended
	s.index.mu.Unlock()
	if ended != 0 {
		end(ended)
	}
}

// Close forgets the stream, which came to its own end.
func (s *Stream) Close() {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	if t := s.index.tunnels[s.tunnel]; t != nil {
		delete(t.streams, s)
	}
}

// expire is what a tunnel's timer does.
func (x *Index) expire(id string, t *tunnel) {
	x.mu.Lock()
	if x.tunnels[id] != t {
		x.mu.Unlock()
		return
	}
	if left := t.expires.Sub(x.cfg.Now()); left > 0 {
		t.timer.Reset(left) // extended meanwhile
		x.mu.Unlock()
		return
	}
	x.mu.Unlock()
	x.drop(id, Expired)
}

// Changed brings the open streams in line with a changed record.
func (x *Index) Changed(now *route.Record) {
	if now.State == route.Gone {
		why := Deleted
		if !x.cfg.Now().Before(now.ExpiresAt) {
			why = Expired
		}
		x.drop(now.Tunnel, why)
		return
	}
	x.extend(now)
	x.endIf(now.Tunnel, func(s *Stream) Reason {
		switch {
		case s.epoch < now.AuthEpoch, s.public && !now.Public:
			return Revoked
		case s.generation < now.Generation:
			return Stale
		case s.generation == now.Generation && now.State != route.Running:
			return Paused
		}
		return 0
	})
}

// extend moves the end of a tunnel, to either side.
func (x *Index) extend(now *route.Record) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.tunnels[now.Tunnel]; t != nil && !t.expires.Equal(now.ExpiresAt) {
		t.expires = now.ExpiresAt
		t.timer.Reset(max(now.ExpiresAt.Sub(x.cfg.Now()), 0))
	}
}

// drop ends all of a tunnel's streams and forgets the tunnel.
func (x *Index) drop(id string, why Reason) {
	x.endIf(id, func(*Stream) Reason { return why })
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.tunnels[id]; t != nil && len(t.streams) == 0 {
		t.timer.Stop()
		delete(x.tunnels, id)
	}
}

// endIf ends those streams of a tunnel for which why gives a reason.
func (x *Index) endIf(id string, why func(*Stream) Reason) int {
	type ending struct {
		end func(Reason)
		why Reason
	}
	var ends []ending
	x.mu.Lock()
	if t := x.tunnels[id]; t != nil {
		for s := range t.streams {
			if r := why(s); r != 0 {
				s.ended = r
				delete(t.streams, s)
				ends = append(ends, ending{s.end, r})
			}
		}
	}
	x.mu.Unlock()
	for _, e := range ends {
		e.end(e.why)
	}
	return len(ends)
}

// Len returns how many streams a tunnel has open.
func (x *Index) Len(tunnel string) int {
	x.mu.Lock()
	defer x.mu.Unlock()
	if t := x.tunnels[tunnel]; t != nil {
		return len(t.streams)
	}
	return 0
}

// Close ends all streams and lets no new one in.
func (x *Index) Close() {
	x.mu.Lock()
	x.closed = true
	ids := make([]string, 0, len(x.tunnels))
	for id := range x.tunnels {
		ids = append(ids, id)
	}
	x.mu.Unlock()
	for _, id := range ids {
		x.drop(id, Shutdown)
	}
}
