package resolver

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"portreeve.dev/egress"
	"portreeve.dev/egress/fair"
)

// A Server answers the queries of sandboxes. It is safe for concurrent use.
type Server struct {
	cfg      Config
	complain rate.Sometimes
	stats    stats
	slots    *fair.Share // one per UDP query under way; no org has more than it leaves for others
	tcpSlots *fair.Share

	mu    sync.Mutex
	boxes map[tableKey]*box
}

type stats struct{ queries, unknown, dropped, overBudget, unrecorded atomic.Uint64 }

// Stats are totals since the start.
type Stats struct {
	Queries    uint64 // of known sandboxes
	Unknown    uint64 // from addresses that belong to no sandbox; not answered
	Dropped    uint64 // not answered because too many were under way
	OverBudget uint64 // refused for the sandbox's rate
	Unrecorded uint64 // refused because the record failed
}

// New makes a server; Serve runs it.
func New(cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Server{cfg: cfg, complain: rate.Sometimes{Interval: 10 * time.Second}, boxes: make(map[tableKey]*box),
		slots: fair.New(cfg.AllInFlight), tcpSlots: fair.New(cfg.AllTCPConns)}, nil
}

// Stats reads the totals.
func (s *Server) Stats() Stats {
	return Stats{s.stats.queries.Load(), s.stats.unknown.Load(), s.stats.dropped.Load(), s.stats.overBudget.Load(), s.stats.unrecorded.Load()}
}

// Drop forgets a sandbox: its names, budgets and what was recorded of it.
func (s *Server) Drop(sandbox string) {
	s.mu.Lock()
	var gone []*box
	for k, x := range s.boxes {
		if k.sandbox == sandbox {
			delete(s.boxes, k)
			gone = append(gone, x)
		}
	}
	s.mu.Unlock()
	for _, x := range gone {
		s.settle(x)
	}
	s.cfg.Names.Drop(sandbox)
}

func (s *Server) box(b egress.Binding) *box {
	k := tableKey{b.Sandbox, b.Incarnation}
	s.mu.Lock()
	defer s.mu.Unlock()
	x := s.boxes[k]
	if x == nil {
		x = newBox(s.cfg)
		s.boxes[k] = x
	}
	return x
}

// Serve answers on both sockets until ctx ends, then finishes what it has begun and closes them. The UDP socket has IP_PKTINFO
// set and is bound to the port that answers come from; any local address is a server's.
func (s *Server) Serve(ctx context.Context, udp *net.UDPConn, tcp net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		udp.SetReadDeadline(time.Unix(1, 0)) // answers under way still go out
		tcp.Close()
	})
	defer stop()
	defer s.settleAll() // what was counted is written before the record is closed
	defer udp.Close()
	defer tcp.Close()

	ended := make(chan error, 2)
	go func() { ended <- s.serveUDP(ctx, udp) }()
	go func() { ended <- s.serveTCP(ctx, tcp) }()
	err := <-ended
	cancel()
	if second := <-ended; err == nil {
		err = second
	}
	return err
}
