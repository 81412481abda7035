package release

import "runtime/debug"

// number is set by the Makefile through the linker: the newest version in CHANGELOG.md.
var number string

// Version is the number of the release, or "devel" and what Go knows of the source.
func Version() string {
	if number != "" {
		return number
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return "devel " + info.Main.Version
	}
	return "devel"
}
