package server

import (
	"sync"

	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/secrets/seal"
)

// openSecrets opens what has a grant: nothing else leaves this process. One that can't be opened goes without its value, which
// closes what it is granted for; the others, and every other org, are as they are.
func (c *control) openSecrets(list []store.Secret) (open []feed.Secret) {
	for _, s := range list {
		if len(s.Grants) == 0 {
			continue
		}
		value, err := c.keyring.Open(seal.Record{Kind: "secret", Org: s.Org, Name: s.ID, Version: s.Version}, s.Sealed)
		if err != nil {
			value = nil
		}
		if c.shut.changed(s.ID, s.Version, err != nil) {
			if err != nil {
				c.log.Error("a secret can't be opened; what it is granted for is closed until it gets a new value", "org", s.Org, "secret", s.ID, "err", err)
			} else {
				c.log.Info("a secret can be opened again", "org", s.Org, "secret", s.ID)
			}
		}
		open = append(open, feed.Secret{ID: s.ID, Version: s.Version, Value: value, Grants: s.Grants})
	}
	return open
}

// shutSecrets remembers which secrets can't be opened, so that the log says it once.
type shutSecrets struct {
	mu sync.Mutex
	is map[string]int64 // version by id
}

// changed reports whether what is said of a secret is new.
func (s *shutSecrets) changed(id string, version int64, shut bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, known := s.is[id]
	if !shut {
		delete(s.is, id)
		return known
	}
	if s.is == nil {
		s.is = make(map[string]int64)
	}
	s.is[id] = version
	return !known || was != version
}
