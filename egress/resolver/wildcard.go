package resolver

import (
	"strings"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

// maxWildcards bounds what is kept of one incarnation; there are no more of them than its policy has.
const maxWildcards = 1024

// alarmWindow is how long the decision about a used up wildcard isn't recorded again.
const alarmWindow = time.Hour

// A spent is what an incarnation has asked for below one wildcard. It chooses these names, and whoever answers for the wildcard gets to
// see them: so they are counted, and end.
type spent struct {
	names map[string]struct{}
	bytes int // of the labels below the wildcard
	over  bool
}

// below charges a name to its wildcard. It returns the wildcard if that is over its budget, and whether this name was what put it there.
func (b *box) below(host, wildcard string, names, bytes int) (over, first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.wildcards[wildcard]
	if s == nil {
		if len(b.wildcards) >= maxWildcards {
			return true, false
		}
		s = &spent{names: make(map[string]struct{})}
		b.wildcards[wildcard] = s
	}
	label := strings.TrimSuffix(host, "."+wildcard)
	if _, ok := s.names[label]; ok {
		return false, false
	}
	if len(s.names) >= names || s.bytes+len(label) > bytes {
		first = !s.over
		s.over = true
		return true, first
	}
	s.names[label] = struct{}{}
	s.bytes += len(label)
	return false, false
}

// Charge counts a name that a sandbox has looked up without asking for it: at a door it names what the dialer then looks up. It returns the
// wildcard, as *.name, whose budget is used up, and whether the host is within it.
func (s *Server) Charge(b egress.Binding, host string) (wildcard string, ok bool) {
	snapshot, revision, err := s.cfg.Policies.Snapshot(b)
	if err != nil || revision < b.MinRevision {
		return "", true // whoever asks has to judge it, and refuses
	}
	return s.withinWildcard(b, s.box(b), snapshot, host)
}

// withinWildcard charges an allowed name, and denies it when its wildcard is used up. The alarm is one line, and one decision about the wildcard,
// not one for each name.
func (s *Server) withinWildcard(b egress.Binding, x *box, snapshot *policies.Snapshot, host string) (about string, ok bool) {
	wildcard := snapshot.Below(host, s.cfg.Now())
	if wildcard == "" {
		return host, true
	}
	over, first := x.below(host, wildcard, s.cfg.WildcardNames, s.cfg.WildcardBytes)
	if !over {
		return host, true
	}
	if first {
		s.cfg.Log.Warn("a sandbox asks for too many names below a wildcard", "sandbox", b.Sandbox, "wildcard", "*."+wildcard)
	}
	return "*." + wildcard, false
}
