// Command demo is the tour: it starts Portreeve on a small internet of its own, does what a first user would do, and
// prints for each step what it saw.
//
//	go run ./.build/demo [-break STEP]
//
// Nothing that it sends leaves the machine. With -break one thing is done wrong on purpose, to show that the tour notices.
// Exit status: 0 when every step did what it says, 1 at the first that did not.
//
//go:debug tlssha1=1
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"time"
)

func main() {
	broken := flag.String("break", "", "do this wrong on purpose: allow, kill, grant, wake, method")
	flag.Parse()
	if err := tour(os.Stdout, *broken); err != nil {
		fmt.Println("demo: error:", err)
		os.Exit(1)
	}
}

// A step is one thing that the tour does; what it saw is one line or some.
type step struct {
	says string
	do   func() (saw string, err error)
}

func tour(out io.Writer, broken string) error {
	v := &visit{broken: broken}
	defer v.end()
	start := time.Now()
	for i, s := range v.steps() {
		fmt.Fprintf(out, "%2d. %s\n", i+1, s.says)
		began := time.Now()
		saw, err := s.do()
		if saw != "" {
			fmt.Fprintf(out, "    %s\n", indent(saw))
		}
		if err != nil {
			fmt.Fprintf(out, "    NOT SO: %s\n", indent(err.Error()))
			return fmt.Errorf("step %d, %q", i+1, s.says)
		}
		fmt.Fprintf(out, "    ok, %.1f s\n", time.Since(began).Seconds())
	}
	fmt.Fprintf(out, "\nEvery step did what it says, in %.0f s.\n", time.Since(start).Seconds())
	return nil
}
