// Command portreeve-node runs the sandboxes of one machine. The supervisor starts it; run portreeve dev.
//
//	portreeve-node                              the process, over the supervisor's socket
//	portreeve-node write-tiny FILE              writes the root filesystem of the image tiny as a tar, from /bin/busybox
//	portreeve-node build-base DIR [PACKAGE...]  builds the image base, with more of Debian's packages if you like, in the
//	                                            image store DIR, which may become STATE/images
//
// It runs as root, writes its log to standard error as JSON, and keeps its state in the directory node/ of the state directory.
package main

import (
	"context"
	"fmt"
	"os"

	"portreeve.dev/gateway/agent/node"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "portreeve-node: error: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 0:
		return node.Run(context.Background())
	case len(args) == 2 && args[0] == "write-tiny":
		return writeTiny(args[1])
	case len(args) >= 2 && args[0] == "build-base":
		return buildBase(args[1], args[2:])
	}
	return fmt.Errorf("unknown arguments %q; it takes none, write-tiny FILE or build-base DIR [PACKAGE...]", args)
}
