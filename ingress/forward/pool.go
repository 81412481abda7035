package forward

import (
	"sync"
	"time"
)

// A key is what a connection is good for.
type key struct {
	tunnel     string
	generation uint64
}

// A pool keeps connections that may be used again.
type pool struct {
	timeout       time.Duration
	perKey, total int

	mu     sync.Mutex
	idle   map[key][]*conn
	count  int
	closed bool
}

func newPool(c Config) *pool {
	return &pool{timeout: c.IdleTimeout, perKey: c.IdlePerKey, total: c.IdleTotal, idle: make(map[key][]*conn)}
}

// take returns a connection that looks alive and was idle for at most the limit; nil if there is none. The last one that
// was given back comes first.
func (p *pool) take(k key, limit time.Duration) *conn {
	for {
		c := p.pop(k)
		if c == nil {
			return nil
		}
		if !c.expire.Stop() {
			continue // its time is up: the timer closes it
		}
		if time.Since(c.idleSince) > limit {
			p.put(c, false) // good for others
			return nil
		}
		if c.quiet() {
			return c
		}
		c.Close()
	}
}

func (p *pool) pop(k key) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[k]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	p.remove(k, len(list)-1)
	return c
}

// remove takes the i-th connection off the list. The caller holds mu.
func (p *pool) remove(k key, i int) {
	list := p.idle[k]
	copy(list[i:], list[i+1:])
	list[len(list)-1] = nil
	p.count--
	if list = list[:len(list)-1]; len(list) == 0 {
		delete(p.idle, k)
	} else {
		p.idle[k] = list
	}
}

// put gives a connection back; fresh says that it was used just now.
func (p *pool) put(c *conn, fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.count >= p.total || len(p.idle[c.key]) >= p.perKey {
		c.Close()
		return
	}
	if fresh {
		c.idleSince = time.Now()
	}
	left := p.timeout - time.Since(c.idleSince)
	if c.expire == nil {
		c.expire = time.AfterFunc(left, func() { p.drop(c) })
	} else {
		c.expire.Reset(left)
	}
	p.idle[c.key] = append(p.idle[c.key], c)
	p.count++
}

// drop is what the timer of an idle connection does.
func (p *pool) drop(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.idle[c.key] {
		if other == c {
			p.remove(c.key, i)
			break
		}
	}
	c.Close()
}

func (p *pool) retire(tunnel string, generation uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, list := range p.idle {
		if k.tunnel == tunnel && k.generation <= generation {
			p.clear(k, list)
		}
	}
}

func (p *pool) clear(k key, list []*conn) {
	for _, c := range list {
		c.expire.Stop()
		c.Close()
	}
	p.count -= len(list)
	delete(p.idle, k)
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for k, list := range p.idle {
		p.clear(k, list)
	}
}
