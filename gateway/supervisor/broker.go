package supervisor

import (
	"log/slog"
	"sync"

	"portreeve.dev/gateway/child"
	"portreeve.dev/gateway/link"
)

// A broker makes a socket pair for each two processes that talk, whenever one of them is new.
type broker struct {
	log     *slog.Logger
	changed func() // called after each change, outside the lock

	mu   sync.Mutex
	live map[string]*link.Conn
}

func newBroker(log *slog.Logger, changed func()) *broker {
	return &broker{log: log, changed: changed, live: make(map[string]*link.Conn)}
}

// up introduces a process to those of its siblings that serve already.
func (b *broker) up(name string, conn *link.Conn) {
	b.mu.Lock()
	b.live[name] = conn
	for _, pair := range links {
		if other := opposite(pair, name); other != "" && b.live[other] != nil {
			if err := introduce(name, conn, other, b.live[other]); err != nil {
				b.log.Warn("processes could not be linked", "process", name, "peer", other, "err", err)
			}
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

func opposite(pair [2]string, name string) string {
	switch name {
	case pair[0]:
		return pair[1]
	case pair[1]:
		return pair[0]
	}
	return ""
}

// introduce gives each of the two an end of a new pair; the supervisor keeps none.
func introduce(a string, toA *link.Conn, b string, toB *link.Conn) error {
	endA, endB, err := link.Pair()
	if err != nil {
		return err
	}
	defer endA.Close()
	defer endB.Close()
	if err := toA.Notify("peer", child.Peer{Name: b}, endA); err != nil {
		return err
	}
	return toB.Notify("peer", child.Peer{Name: a}, endB)
}
