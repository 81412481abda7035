// Command egress measures the way out beside its references, in one run on one machine.
//
//	make bench-egress ARGS='-rounds 3'     all rows: ten minutes
//	make bench-egress ARGS='-run dns'      one row, five rounds
//
// What goes to standard output is the table for docs/performance.md; the rest is on standard error.
//
// Two network namespaces and a link between them: in one run the product and whatever it is compared with, in the other a
// plain HTTPS and DNS server. The client of the product is a plain process in a sandbox's own namespace, behind the sandbox's
// own link, as the product made it; the sandbox itself is paused, because under gVisor its system calls are the ceiling, not
// our data plane. The client of the others stands behind a link of the same kind.
//
// A round runs every contender of a row for some seconds, one after the other, at the same open-loop rate. Processor time is
// that of all processes of a contender, which for us includes the node, control and the writing of records. A round whose
// contenders moved together says nothing about one of them, so the ratio to the reference is taken within a round, and the
// median of those is printed with the lowest and the highest. A row whose reference moved by over 20 % says so. On a machine that
// has other things to do, -share sends less than a row's rate; such figures are for comparing two builds, and belong in no table.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	rounds := flag.Int("rounds", 5, "")
	seconds := flag.Float64("seconds", 3, "of one contender in one round")
	only := flag.String("run", "", "rows whose name matches this regular expression")
	share := flag.Float64("share", 1, "of each row's rate")
	tools := flag.String("tools", "", "folder of what was built in this module")
	bin := flag.String("bin", "", "folder of the product's binaries")
	flag.Parse()
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	connections := manyConnections()
	w, err := newWorld(ctx, *tools, *bin)
	if w != nil {
		w.share, w.connections = *share, connections
		defer w.close()
	}
	if err != nil {
		return err
	}
	fmt.Print(tableHead)
	for _, row := range rows {
		if !match.MatchString(row.name) {
			continue
		}
		if err := w.row(ctx, row, *rounds, *seconds); err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
	}
	return nil
}
