// Command portreeve-edge is the process that judges and dials for sandboxes, and with the argument inward the one that
// reaches into them. The supervisor starts both; run portreeve dev.
//
// It has no flags and no capabilities, writes its log to standard error as JSON, and keeps decisions that are on their way in
// the directory edge/ of the state directory.
package main

import (
	"context"
	"fmt"
	"os"

	"portreeve.dev/gateway/agent/edge"
	"portreeve.dev/gateway/agent/inward"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "portreeve-edge: error: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 0:
		return edge.Run(context.Background())
	case len(args) == 1 && args[0] == "inward":
		return inward.Run(context.Background())
	}
	return fmt.Errorf("unknown arguments %q; it takes none, or inward", args)
}
