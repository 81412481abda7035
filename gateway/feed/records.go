package feed

import (
	"strings"

	"portreeve.dev/egress"
)

// Records say how an org's decisions are recorded. The zero value is the strictest.
type Records struct {
	BestEffort bool   `json:"best_effort,omitempty"` // what can't be recorded goes on, but for requests with a secret
	Paths      string `json:"paths,omitempty"`       // what is kept of paths: PathsFull, PathsPrefix; else nothing
	Key        []byte `json:"key,omitempty"`         // for hashes of credentials; of this org alone
}

// How much of a path is recorded.
const (
	PathsFull   = "full"
	PathsPrefix = "prefix" // two segments
	PathsNone   = "none"
)

// cutPath stands for what is not recorded.
const cutPath = "/…"

// Path is what is recorded of a path, which is in canonical form and without its query.
func (r Records) Path(path string) string {
	switch r.Paths {
	case PathsFull:
		return path
	case PathsPrefix:
		return firstTwo(path)
	}
	return ""
}

func firstTwo(path string) string {
	end, seen := 0, 0
	for i, c := range path {
		if c != '/' {
			continue
		}
		if seen == 2 {
			end = i
			break
		}
		seen++
	}
	if end == 0 || strings.Trim(path[end:], "/") == "" {
		return path
	}
	return path[:end] + cutPath
}

// Records returns how an org's decisions are recorded, by the last state that came, however old: without any, as strictly as can be.
func (h *Holder) Records(org string) Records {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.now == nil {
		return Records{}
	}
	return h.now.records[org]
}

// HashKey is the key under which an org's foreign credentials are hashed; nil if there is none.
func (h *Holder) HashKey(b egress.Binding) []byte { return h.Records(b.Org).Key }
