package edge

import (
	"fmt"

	"golang.org/x/sys/unix"

	"portreeve.dev/egress/fair"
)

// ownDescriptors is how many the edge keeps for itself: spool, links, listeners, the runtime's poller, and accepting a connection
// that it then refuses.
const ownDescriptors = 128

// fewDescriptors is a limit under which an org can hardly work; it is worth a line in the log.
const fewDescriptors = 4096

// descriptors raises the limit of open files as far as it goes, and divides what is not the edge's own between the orgs. It runs
// before the cage, in which the limit can't be changed.
func (e *Edge) descriptors() (*fair.Share, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return nil, fmt.Errorf("reading the limit of open files: %w", err)
	}
	if limit.Cur < limit.Max {
		limit.Cur = limit.Max
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			return nil, fmt.Errorf("raising the limit of open files: %w", err)
		}
	}
	if limit.Cur < fewDescriptors {
		e.log.Warn("few files may be open at once; raise the hard limit of open files for connections to be many", "descriptors", limit.Cur)
	}
	most := int(min(limit.Cur, 1<<24))
	return fair.New(max(most-ownDescriptors, most/4)), nil
}
