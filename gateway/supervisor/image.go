package supervisor

import (
	"context"
	"path/filepath"
	"time"

	"portreeve.dev/gateway/role"
	"portreeve.dev/nodes/images"
)

const lookAtBase = 2 * time.Second

// tellBase says on the terminal what became of the image that the node builds beside its work, as nobody looks into the
// node's log for it. The record in the image store is the node's word.
func (s *Supervisor) tellBase(ctx context.Context) {
	s.mu.Lock()
	building := s.status.Base == role.BaseBuilding
	s.mu.Unlock()
	if !building {
		return
	}
	tick := time.NewTicker(lookAtBase)
	defer tick.Stop()
	for {
		switch image, err := images.Look(filepath.Join(s.config.StateDir, "images"), "base"); {
		case err != nil: // the node is about to write it
		case image.State == "ready":
			s.config.Log.Info("image built", "image", image.Name)
			return
		case image.State == "failed":
			s.config.Log.Warn("image not built, the next start tries again; sandboxes use tiny", "image", image.Name, "err", image.Error)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
