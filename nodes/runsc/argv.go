package runsc

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
)

// NewID returns an id for a container. All ids have one length: runsc takes any unambiguous prefix for the whole.
func NewID() string {
	b := make([]byte, 10)
	rand.Read(b)
	return "pr" + hex.EncodeToString(b)
}

var validID = regexp.MustCompile(`^pr[0-9a-f]{20}$`)

// ValidID reports whether id is one that NewID could have made.
func ValidID(id string) bool { return validID.MatchString(id) }

// flags are what every command begins with.
func (c *CLI) flags() []string {
	f := []string{
		"--root=" + c.c.Root,
		"--platform=" + c.c.Platform,
		"--network=sandbox",
		"--host-uds=open", // process 1 may connect to the socket in its control directory; nothing may be bound there
	}
	if c.c.Debug != "" {
		f = append(f, "--debug", "--debug-log="+c.c.Debug+"/")
	}
	return f
}

func (c *CLI) argv(id, command string, rest ...string) ([]string, error) {
	if !ValidID(id) {
		return nil, fmt.Errorf("runsc %s: %q is not a container id", command, id)
	}
	return append(append(c.flags(), command), rest...), nil
}

func (c *CLI) createArgv(r Create, logFile, pidFile string) ([]string, error) {
	if !ValidID(r.ID) {
		return nil, fmt.Errorf("runsc create: %q is not a container id", r.ID)
	}
	if !filepath.IsAbs(r.Bundle) || r.WorkspaceBytes <= 0 {
		return nil, fmt.Errorf("runsc create: bundle %q, workspace %d bytes", r.Bundle, r.WorkspaceBytes)
	}
	// "all" reaches every writable mount with a host directory behind it; the spec has exactly one, /workspace. (The
	// root is read-only, so "root" would reach nothing.)
	argv := append(c.flags(),
		"--overlay2=all:dir="+c.c.Upper+",size="+strconv.FormatInt(r.WorkspaceBytes, 10),
		"--log="+logFile, "--log-format=json",
		"create", "--bundle="+r.Bundle, "--pid-file="+pidFile, r.ID)
	return argv, nil
}
