package api

import "sync"

// onceEach lets each org do one thing at a time.
type onceEach struct {
	mu  sync.Mutex
	now map[string]bool
}

func (o *onceEach) begin(org string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.now[org] {
		return false
	}
	if o.now == nil {
		o.now = make(map[string]bool)
	}
	o.now[org] = true
	return true
}

func (o *onceEach) end(org string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.now, org)
}
