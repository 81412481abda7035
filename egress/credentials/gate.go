package credentials

import (
	"context"
	"crypto/hmac"
	"errors"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// A Keeper stands at a door and says whose a connection is.
type Keeper interface {
	// Known returns whose it is without any credential: of a connection on a sandbox's own socket. False where one is needed.
	Known() (egress.Binding, bool)
	// Admit checks a credential; both are empty when none was sent.
	Admit(ctx context.Context, username, password string) Admission
}

// An Admission is what came of a credential.
type Admission struct {
	Binding egress.Binding  // also of a refusal, if it names a sandbox that is there
	Reason  policies.Reason // empty: it is let in
	Record  bool            // the refusal belongs into the sandbox's decisions
}

// GateConfig of a Gate.
type GateConfig struct {
	// Lookup returns an attached sandbox and the keys of its org.
	Lookup func(sandbox string) (egress.Binding, []Key, bool)
	// FirstWait is how long an address waits for the answer to its second failure in a row; it doubles each time up to LastWait,
	// and is forgotten after Forget. Defaults 100 ms, 5 s, 1 min.
	FirstWait, LastWait, Forget time.Duration
	Now                         func() time.Time                     // default time.Now
	Sleep                       func(context.Context, time.Duration) // default a timer
}

// A Gate checks credentials at the doors that need one. It is safe for concurrent use.
type Gate struct {
	cfg GateConfig

	mu      sync.Mutex
	failed  *lru.Cache[netip.Addr, failures]  // by source
	records *lru.Cache[string, *rate.Limiter] // by sandbox
}

type failures struct {
	n    int
	last time.Time
}

// Records of failures in a sandbox's name: so many a second, and so many at once.
const (
	recordRate  = 1
	recordBurst = 10
)

// NewGate returns a Gate.
func NewGate(cfg GateConfig) (*Gate, error) {
	if cfg.Lookup == nil {
		return nil, errors.New("a gate needs a way to look up sandboxes")
	}
	for _, d := range []struct {
		v    *time.Duration
		then time.Duration
	}{{&cfg.FirstWait, 100 * time.Millisecond}, {&cfg.LastWait, 5 * time.Second}, {&cfg.Forget, time.Minute}} {
		if *d.v == 0 {
			*d.v = d.then
		}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Sleep == nil {
		cfg.Sleep = sleep
	}
	failed, err := lru.New[netip.Addr, failures](4096)
	if err != nil {
		return nil, err
	}
	records, err := lru.New[string, *rate.Limiter](4096)
	return &Gate{cfg: cfg, failed: failed, records: records}, err
}

func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// Admit checks a credential that came to a door from an address. A refusal takes the longer the more there were before it.
func (g *Gate) Admit(ctx context.Context, at Door, from netip.Addr, username, password string) Admission {
	if username == "" && password == "" {
		return Admission{Reason: policies.ReasonCredential} // a client that waits to be asked
	}
	b, reason := g.check(at, from.Unmap(), username, password)
	if reason == "" {
		return Admission{Binding: b}
	}
	a := Admission{Binding: b, Reason: reason, Record: b.Sandbox != "" && g.mayRecord(b.Sandbox)}
	if wait := g.wait(from.Unmap()); wait > 0 {
		g.cfg.Sleep(ctx, wait)
	}
	return a
}

// maxUsername is longer than any sandbox's id, in bytes.
const maxUsername = 64

// check does the same work whatever is wrong.
func (g *Gate) check(at Door, from netip.Addr, username, password string) (egress.Binding, policies.Reason) {
	b, keys, known := g.cfg.Lookup(username)
	name := b.Sandbox
	if !known {
		b, name = egress.Binding{}, username[:min(len(username), maxUsername)]
	}
	sent, version, whole := decode(password)
	key := Key{Secret: make([]byte, 32)}
	found := false
	for _, k := range keys {
		if k.Version == version && len(k.Secret) >= 32 {
			key, found = k, true
		}
	}
	same := hmac.Equal(mac(key, payloadOf(&sent), name, b.Incarnation), signature(&sent))
	switch {
	case !known || !whole || !found || !same:
		return b, policies.ReasonCredential
	case !g.cfg.Now().Before(expires(&sent)), expires(&sent).Sub(g.cfg.Now()) > Lifetime+time.Minute: // made while the clock was ahead
		return b, policies.ReasonCredentialExpired
	case door(&sent) != doors[at], source(&sent) != from:
		return b, policies.ReasonCredentialElse
	}
	return b, ""
}

// mayRecord takes one record out of what strangers may cause in a sandbox's name.
func (g *Gate) mayRecord(sandbox string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l, ok := g.records.Get(sandbox)
	if !ok {
		l = rate.NewLimiter(recordRate, recordBurst)
		g.records.Add(sandbox, l)
	}
	return l.AllowN(g.cfg.Now(), 1)
}

// wait counts a failure and says how long its answer is held back.
func (g *Gate) wait(from netip.Addr) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	f, _ := g.failed.Get(from)
	now := g.cfg.Now()
	if now.Sub(f.last) > g.cfg.Forget {
		f.n = 0
	}
	f.n, f.last = f.n+1, now
	g.failed.Add(from, f)
	if f.n == 1 {
		return 0
	}
	wait := g.cfg.FirstWait
	for range f.n - 2 {
		if wait *= 2; wait >= g.cfg.LastWait {
			return g.cfg.LastWait
		}
	}
	return wait
}
