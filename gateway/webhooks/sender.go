package webhooks

import (
	"context"
	"sync"
	"time"
)

// A Sender delivers what is queued. Make it with New.
type Sender struct {
	cfg Config

	mu    sync.Mutex
	busy  map[string]bool // endpoints with a try under way
	byOrg map[string]int
	all   int
}

// New checks the configuration and starts nothing.
func New(cfg Config) (*Sender, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	return &Sender{cfg: cfg, busy: make(map[string]bool), byOrg: make(map[string]int)}, nil
}

// Run delivers until ctx ends, and waits for what is under way.
func (s *Sender) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	done := make(chan struct{}, 1)
	poll := time.NewTicker(s.cfg.Poll)
	defer poll.Stop()
	for {
		more := s.cfg.Queue.WebhooksQueued() // before looking: what comes after it wakes us
		s.start(ctx, &running, done)
		select {
		case <-ctx.Done():
			return nil
		case <-more:
		case <-done:
		case <-poll.C:
		}
	}
}

// start begins a try for what is due, as far as there is room.
func (s *Sender) start(ctx context.Context, running *sync.WaitGroup, done chan<- struct{}) {
	taken := make(map[string]string) // endpoint to org
	due, err := s.cfg.Queue.DueWebhooks(ctx, lease, func(org, endpoint string) bool {
		if !s.enter(org, endpoint) {
			return false
		}
		taken[endpoint] = org
		return true
	})
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Warn("what is queued for webhooks can't be read", "err", err)
	}
	for _, d := range due {
		delete(taken, d.Endpoint.ID)
		running.Go(func() { s.deliver(ctx, d, done) })
	}
	for endpoint, org := range taken { // somebody else was quicker
		s.leave(org, endpoint)
	}
}

func (s *Sender) deliver(ctx context.Context, d Delivery, done chan<- struct{}) {
	o := s.Attempt(ctx, d)
	if ctx.Err() == nil { // else it comes again after its lease
		next := time.Time{}
		if !o.Delivered {
			next = again(d.Endpoint, d.Attempt, s.cfg.Now())
		}
		s.settle(ctx, d, o, next)
	}
	s.leave(d.Org, d.Endpoint.ID)
	select {
	case done <- struct{}{}:
	default:
	}
}

func (s *Sender) settle(ctx context.Context, d Delivery, o Outcome, next time.Time) {
	if err := s.cfg.Queue.SettleWebhook(ctx, d.ID, o, next); err != nil {
		s.cfg.Log.Warn("the end of a delivery can't be written down; it comes again", "webhook", d.Endpoint.ID, "err", err)
	}
}

// enter takes a place: one try at a time for an endpoint, and of an org no more than its share.
func (s *Sender) enter(org, endpoint string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[endpoint] || s.byOrg[org] >= s.cfg.PerOrg || s.all >= s.cfg.Parallel {
		return false
	}
	s.busy[endpoint] = true
	s.byOrg[org]++
	s.all++
	return true
}

func (s *Sender) leave(org, endpoint string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, endpoint)
	s.all--
	if s.byOrg[org]--; s.byOrg[org] <= 0 {
		delete(s.byOrg, org)
	}
}
