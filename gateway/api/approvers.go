package api

import "sync"

// approversMost is how many streams of requests one org has open.
const approversMost = 32

// approvers count who watches the requests of an org, ready to decide them.
type approvers struct {
	mu      sync.Mutex
	byOrg   map[string]int
	changed chan struct{} // closed and replaced when somebody comes or goes
}

func newApprovers() *approvers {
	return &approvers{byOrg: make(map[string]int), changed: make(chan struct{})}
}

// join counts one in; nil when the org has as many as it may.
func (a *approvers) join(org string) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byOrg[org] >= approversMost {
		return nil
	}
	a.byOrg[org]++
	a.tell()
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.byOrg[org]--; a.byOrg[org] == 0 {
			delete(a.byOrg, org)
		}
		a.tell()
	}
}

// tell wakes whoever waits. The caller holds mu.
func (a *approvers) tell() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// there reports whether anybody watches, and returns a channel that is closed when that may have changed.
func (a *approvers) there(org string) (bool, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.byOrg[org] > 0, a.changed
}
