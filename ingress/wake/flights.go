package wake

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// A Waker makes a sandbox run; gateway fills it in.
type Waker interface {
	// Wake returns the generation in which the sandbox runs. from is the generation that the caller found not running: if
	// the sandbox runs in a later one already, that is returned and nothing is done. It blocks until the sandbox runs or
	// ctx ends, and is called for different sandboxes at once.
	Wake(ctx context.Context, sandbox string, from uint64) (uint64, error)
}

// Why a caller is not held, or no longer.
var (
	ErrFull   = errors.New("too many callers wait")
	ErrBudget = errors.New("the sandbox is still being woken")
	ErrClosed = errors.New("shutting down")
)

// A FailedError says that a sandbox could not be woken, and when it is tried again.
type FailedError struct {
	Cause      error
	RetryAfter time.Duration
}

func (e *FailedError) Error() string { return fmt.Sprintf("waking the sandbox: %v", e.Cause) }
func (e *FailedError) Unwrap() error { return e.Cause }

// Config of Flights.
type Config struct {
	Waker      Waker
	PerSandbox int              // callers held for one sandbox; default 1024
	PerOrg     int              // for all of an org; default half of Total
	Total      int              // default 4096
	Hold       time.Duration    // how long one caller is held; default 30 s
	Budget     time.Duration    // how long a flight may last; default 60 s
	Remember   time.Duration    // how long an outcome is known; default 10 s
	Now        func() time.Time // default time.Now
}

// Flights are the wakes in progress. They are safe for concurrent use.
type Flights struct {
	cfg  Config
	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup // flights

	mu      sync.Mutex
	flights map[string]*flight // by sandbox, the finished ones as long as they are remembered
	parked  int
	orgs    map[string]int
	closed  bool

	anonymous anonymous
}

// A flight is one attempt. What comes after done is fixed before done is closed.
type flight struct {
	from  uint64
	done  chan struct{}
	to    uint64
	err   error
	until time.Time     // of a failure: not again before
	wait  time.Duration // of a failure: the back-off
	since time.Time     // of a success

	parked int         // guarded by Flights.mu
	forget *time.Timer // guarded by Flights.mu
}

// New returns Flights without any.
func New(c Config) (*Flights, error) {
	if c.Waker == nil {
		return nil, errors.New("wake: no Waker")
	}
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.PerSandbox, 1024)
	def(&c.Total, 4096)
	def(&c.PerOrg, max(c.Total/2, 1))
	for v, d := range map[*time.Duration]time.Duration{&c.Hold: 30 * time.Second, &c.Budget: time.Minute, &c.Remember: 10 * time.Second} {
		if *v == 0 {
			*v = d
		}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	f := &Flights{cfg: c, flights: make(map[string]*flight), orgs: make(map[string]int), anonymous: newAnonymous()}
	f.ctx, f.stop = context.WithCancel(context.Background())
	return f, nil
}

// Close ends all flights and waits for them.
func (f *Flights) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.stop()
	f.wg.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, fl := range f.flights {
		if fl.forget != nil {
			fl.forget.Stop()
		}
	}
}

// A Call is who found which sandbox asleep.
type Call struct {
	Org       string
	Sandbox   string
	From      uint64 // the generation that was found not running
	Anonymous bool   // without a credential: a wake counts against PerMinute
	PerMinute int    // how often such callers may wake sandboxes of the org; 0 is never
}

// Start has the sandbox woken, if it isn't being woken already, and holds nobody.
func (f *Flights) Start(c Call) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.join(c)
	return err
}

// Wait holds the caller until the sandbox runs in a generation after the one it found, and returns that.
func (f *Flights) Wait(ctx context.Context, c Call) (uint64, error) {
	fl, err := f.park(c)
	if err != nil {
		return 0, err
	}
	defer f.leave(c.Org, fl)
	hold := time.NewTimer(f.cfg.Hold)
	defer hold.Stop()
	select {
	case <-fl.done:
		return f.outcome(fl)
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-hold.C:
		return 0, ErrBudget
	}
}

// WokenAt returns when this process saw the sandbox come to life in that generation; zero if it did not, or long ago.
func (f *Flights) WokenAt(sandbox string, generation uint64) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.flights[sandbox]; fl != nil && fl.finished() && fl.err == nil && fl.to == generation {
		return fl.since
	}
	return time.Time{}
}

func (f *Flights) park(c Call) (*flight, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.parked >= f.cfg.Total || f.orgs[c.Org] >= f.cfg.PerOrg {
		return nil, ErrFull
	}
	fl, err := f.join(c)
	if err != nil {
		return nil, err
	}
	if fl.parked >= f.cfg.PerSandbox {
		return nil, ErrFull
	}
	fl.parked++
	f.parked++
	f.orgs[c.Org]++
	return fl, nil
}

func (f *Flights) leave(org string, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.parked--
	f.parked--
	if f.orgs[org]--; f.orgs[org] == 0 {
		delete(f.orgs, org)
	}
}

// join returns the flight that c has to wait for. The caller holds mu.
func (f *Flights) join(c Call) (*flight, error) {
	if f.closed {
		return nil, ErrClosed
	}
	wait := time.Duration(0)
	if fl := f.flights[c.Sandbox]; fl != nil {
		switch {
		case !fl.finished():
			return fl, nil
		case fl.err == nil && fl.to > c.From:
			return fl, nil // the caller's route is older than the last flight
		case fl.err != nil && fl.from == c.From:
			if left := fl.until.Sub(f.cfg.Now()); left > 0 {
				return nil, &FailedError{fl.err, left}
			}
			wait = fl.wait
		}
	}
	if c.Anonymous {
		if err := f.anonymous.take(c.Org, c.Sandbox, c.PerMinute, f.cfg.Now()); err != nil {
			return nil, err
		}
	}
	if fl := f.flights[c.Sandbox]; fl != nil && fl.forget != nil {
		fl.forget.Stop()
	}
	fl := &flight{from: c.From, done: make(chan struct{}), wait: wait}
	f.flights[c.Sandbox] = fl
	f.wg.Add(1)
	go f.fly(c.Sandbox, fl)
	return fl, nil
}

func (fl *flight) finished() bool {
	select {
	case <-fl.done:
		return true
	default:
		return false
	}
}

func (f *Flights) outcome(fl *flight) (uint64, error) {
	if fl.err != nil {
		return 0, &FailedError{fl.err, max(fl.until.Sub(f.cfg.Now()), time.Second)}
	}
	return fl.to, nil
}

// maxBackOff is the longest time after which a failed wake is tried again.
const maxBackOff = 30 * time.Second

// fly is the goroutine of one flight.
func (f *Flights) fly(sandbox string, fl *flight) {
	defer f.wg.Done()
	ctx, cancel := context.WithTimeout(f.ctx, f.cfg.Budget)
	defer cancel()
	to, err := f.cfg.Waker.Wake(ctx, sandbox, fl.from)
	if err == nil && to <= fl.from {
		err = fmt.Errorf("generation %d after %d", to, fl.from)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	fl.to, fl.err, fl.since = to, err, f.cfg.Now()
	keep := f.cfg.Remember
	if err != nil {
		fl.wait = min(max(2*fl.wait, time.Second), maxBackOff)
		fl.until = fl.since.Add(fl.wait)
		keep += fl.wait
	}
	if !f.closed {
		fl.forget = time.AfterFunc(keep, func() { f.drop(sandbox, fl) })
	}
	close(fl.done)
}

// drop forgets an outcome.
func (f *Flights) drop(sandbox string, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.flights[sandbox] == fl {
		delete(f.flights, sandbox)
	}
}

// Woken returns the generation in which the sandbox runs after from, as far as this process knows; 0 if it does not.
func (f *Flights) Woken(sandbox string, from uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl := f.flights[sandbox]; fl != nil && fl.finished() && fl.err == nil && fl.to > from {
		return fl.to
	}
	return 0
}

// Parked returns how many callers are held now.
func (f *Flights) Parked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.parked
}
