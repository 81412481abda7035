package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"time"

	"portreeve.dev/nodes/netns"
)

// resting keeps the addresses in quarantine over a restart: what is open on one may live as long without the node as with it.
type resting struct {
	file      string // "" keeps nothing
	addresses *netns.Addresses
}

func (r resting) load() error {
	data, err := os.ReadFile(r.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var since map[netip.Addr]time.Time
	if err := json.Unmarshal(data, &since); err != nil {
		return fmt.Errorf("addresses in quarantine, %s: %w", r.file, err)
	}
	r.addresses.Rest(since)
	return nil
}

// save replaces the file as a whole.
func (r resting) save() error {
	if r.file == "" {
		return nil
	}
	data, err := json.Marshal(r.addresses.Released())
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.file+".new", data, 0o600); err != nil {
		return fmt.Errorf("addresses in quarantine: %w", err)
	}
	return os.Rename(r.file+".new", r.file)
}
