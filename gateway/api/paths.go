package api

import (
	"path"
	"strings"
)

const maxPath = 4096

// insidePath returns the absolute, clean form of a path of a sandbox. Only /workspace and /tmp are its own; a relative path
// begins in /workspace. The guest looks again, at what is really there: links are its business.
func insidePath(location, p string) (string, error) {
	switch {
	case p == "":
		return "", invalid(location, "is missing")
	case len(p) > maxPath || strings.Contains(p, "\x00"):
		return "", invalid(location, "is not a path")
	}
	for segment := range strings.SplitSeq(p, "/") {
		if segment == ".." {
			return "", outside(location)
		}
	}
	if !strings.HasPrefix(p, "/") {
		p = "/workspace/" + p
	}
	p = path.Clean(p)
	for _, root := range []string{"/workspace", "/tmp"} {
		if p == root || strings.HasPrefix(p, root+"/") {
			return p, nil
		}
	}
	return "", outside(location)
}

func outside(location string) *Problem {
	return problem(422, "path_outside", "the path leaves the sandbox's folders", FieldError{location, "must lie in /workspace or /tmp, without .."})
}
