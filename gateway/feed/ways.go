package feed

import "portreeve.dev/egress/dial"

// Ways returns how the connections of each org leave, by the last state that came.
func (h *Holder) Ways() map[string]dial.Way {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.now == nil {
		return nil
	}
	return h.now.ways
}
