// Command portreeve runs the edge gateway and talks to it.
//
//	portreeve dev                       start everything on this machine
//	portreeve run -- CMD                run a command in a sandbox of its own
//	portreeve sandbox|policy|decisions  look at and change what runs
//	portreeve tunnel open PORT          give a port of a sandbox a URL; portreeve forward PORT a local address
//	portreeve secret set NAME           keep a value that never enters a sandbox; portreeve grant says where it goes
//
// It keeps its state below /var/lib/portreeve (--state), where the files log/NAME.log hold the logs of its processes, and
// writes how to reach it to info.json there (--info), of mode 0600 because the API key is in it. Every command that calls
// the API reads that file, or PORTREEVE_URL and PORTREEVE_KEY. Answers go to standard output, everything else to standard
// error. Exit status: 0 done, 1 failed, 2 wrong usage, 3 denied; run and shell end with their command's own.
package main

import (
	"context"
	"os"
	"os/signal"

	"portreeve.dev/gateway/supervisor"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), supervisor.Signals...)
	go func() {
		<-ctx.Done()
		stop() // the second signal ends at once
	}()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
