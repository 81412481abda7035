package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"portreeve.dev/gateway/release"
	"portreeve.dev/gateway/role"
	"portreeve.dev/gateway/supervisor"
)

// screen shows once that everything runs: where it is, what was checked, and what to try. A check stands here only if
// something looked: the node reads the edge netns back, edge and inward try from inside what must be refused.
func (a *app) screen(s supervisor.Status) {
	fmt.Fprintf(a.out, `
portreeve %[1]s   (development: sandboxes end with this run; state in %[3]s)

  API      %[4]s
           key in %[5]s (mode 0600)
  Tunnels  https://%[6]s
  Checks   ok  edge netns %[7]s has no uplink, no default route and does not forward
           %[8]s
           %[9]s
  Images   %[10]s

  Try      %[2]s run -- wget -qO- https://example.com/   # refused: see why
           %[2]s decisions                               # what was decided
           %[2]s allow example.com --for 1h              # shows what it would have allowed, then applies
           %[2]s shell                                   # a terminal in a sandbox
           %[2]s tunnel open 8000                        # gives a port of a sandbox a URL
           %[2]s probe                                   # tries every way out

Ctrl-C stops everything.
`, release.Version(), a.called(), s.State, s.APIURL, a.infoFile, s.HTTPSAddr, s.EdgeNetns, cageLine(supervisor.Edge, s.Cages), cageLine(supervisor.Inward, s.Cages), imageLine(s.Base))
}

// called is how to call this program again: as it was called, and with where its file is unless that is the usual place.
func (a *app) called() string {
	name := "portreeve"
	if first := os.Args[0]; filepath.Base(first) == name && strings.Contains(first, "/") {
		name = first
	}
	if a.infoFile != defaultInfo {
		name += " --info " + a.infoFile
	}
	return name
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
