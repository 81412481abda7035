package supervisor

import (
	"log/slog"
	"sync"
	"time"

	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/link"
)

// reunion is the pause before two living processes that lost each other are linked again.
const reunion = 100 * time.Millisecond

// A broker makes a socket pair for each two processes that talk, whenever one of them is new or their link broke.
type broker struct {
	log     *slog.Logger
	changed func() // called after each change, outside the lock

	mu      sync.Mutex
	live    map[string]*link.Conn
	last    uint64               // serial
	serials map[[2]string]uint64 // of the pair's newest link
}

func newBroker(log *slog.Logger, changed func()) *broker {
	return &broker{log: log, changed: changed, live: make(map[string]*link.Conn), serials: make(map[[2]string]uint64)}
}

// up introduces a process to those of its siblings that serve already.
func (b *broker) up(name string, conn *link.Conn) {
	b.mu.Lock()
	b.live[name] = conn
	for _, pair := range links {
		if opposite(pair, name) != "" {
			b.introduce(pair)
		}
	}
	b.mu.Unlock()
	b.changed()
}

func (b *broker) down(name string) {
	b.mu.Lock()
	delete(b.live, name)
	b.mu.Unlock()
	b.changed()
}

// lost takes a process's word that its link to another ended, and links the two again if both live. Both may say so, and
// one that died is linked when it is up again: only the newest link's serial counts.
func (b *broker) lost(name string, peer child.Peer) {
	for _, pair := range links {
		if opposite(pair, name) == peer.Name {
			time.AfterFunc(reunion, func() { b.reunite(pair, peer.Serial) })
		}
	}
}

func (b *broker) reunite(pair [2]string, serial uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.serials[pair] == serial && b.live[pair[0]] != nil && b.live[pair[1]] != nil {
		b.log.Warn("a link between living processes broke; they are linked anew", "process", pair[0], "peer", pair[1])
		b.introduce(pair)
	}
}

func opposite(pair [2]string, name string) string {
	switch name {
	case pair[0]:
		return pair[1]
	case pair[1]:
		return pair[0]
	}
	return ""
}

// introduce gives each of the two an end of a new pair, if both live; the supervisor keeps none. The caller holds mu.
func (b *broker) introduce(pair [2]string) {
	left, right := b.live[pair[0]], b.live[pair[1]]
	if left == nil || right == nil {
		return
	}
	b.last++
	b.serials[pair] = b.last
	if err := connect(pair, left, right, b.last); err != nil {
		b.log.Warn("processes could not be linked", "process", pair[0], "peer", pair[1], "err", err)
	}
}

func connect(pair [2]string, left, right *link.Conn, serial uint64) error {
	a, z, err := link.Pair()
	if err != nil {
		return err
	}
	defer a.Close()
	defer z.Close()
	if err := left.Notify("peer", child.Peer{Name: pair[1], Serial: serial}, a); err != nil {
		return err
	}
	return right.Notify("peer", child.Peer{Name: pair[0], Serial: serial}, z)
}
