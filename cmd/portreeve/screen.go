package main

import (
	"fmt"

	"portreeve.dev/gateway/release"
	"portreeve.dev/gateway/role"
	"portreeve.dev/gateway/supervisor"
)

// screen shows once that everything runs: where it is, what was checked, and what to try. A check stands here only if
// something looked: the node reads the edge netns back, edge and inward try from inside what must be refused.
func (a *app) screen(s supervisor.Status) {
	fmt.Fprintf(a.out, `
portreeve %s   (development: sandboxes end with this run; state in %s)

  API      %s
           key in %s (mode 0600)
  Tunnels  https://%s
  Checks   ok  edge netns %s has no uplink, no default route and does not forward
           %s
           %s
  Images   %s

  Try      portreeve run -- wget -qO- https://example.com/   # refused: see why
           portreeve decisions                               # what was decided
           portreeve allow example.com --for 1h              # shows what it would have allowed, then applies
           portreeve shell                                   # a terminal in a sandbox
           portreeve tunnel open 8000                        # gives a port of a sandbox a URL
           portreeve probe                                   # tries every way out

Ctrl-C stops everything.
`, release.Version(), s.State, s.APIURL, a.infoFile, s.HTTPSAddr, s.EdgeNetns, cageLine(supervisor.Edge, s.Cages), cageLine(supervisor.Inward, s.Cages), imageLine(s.Base))
}

// cageLine tells what a process that reads hostile bytes saw hold for itself.
func cageLine(name string, cages map[string]role.Caged) string {
	c, reported := cages[name]
	switch {
	case !reported:
		return "--  " + name + " said nothing of its cage"
	case c.LandlockABI == 0:
		return fmt.Sprintf("--  %s: no Landlock in this kernel, so files of the machine that anybody may read are not closed to it", name)
	}
	return fmt.Sprintf("ok  %s is in its cage: Landlock ABI %d, %d checks from inside held", name, c.LandlockABI, len(c.Checked))
}

func imageLine(base string) string {
	switch base {
	case role.BaseReady:
		return "base, tiny"
	case role.BaseBuilding:
		return "tiny; base is being built in the background, which takes some minutes: until then tiny is used"
	case "":
		return "tiny"
	}
	return "tiny; base can't be built here: " + base
}
