//go:build tools

// Package gvisor pins the gVisor build that nodes run; the Makefile builds runsc from it.
package gvisor

import _ "gvisor.dev/gvisor/runsc/cli/maincli"
