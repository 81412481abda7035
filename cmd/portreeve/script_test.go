package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"portreeve": main})
}

// TestCommands runs one script for each verb, each against an API of its own.
//
// What testscript's commands lack:
//
//	answer METHOD PATH STATUS [FILE]   what the API says to that call from here on; PATH is below /api/v1. FILE.sse is a stream
//	                                   of events, FILE.ws what a terminal says (see terminal), all else is JSON
//	asked METHOD PATH [REGEXP]         fails unless that call was made, with a query or body that matches; then forgets it
//	unasked                            fails if there was a call that no asked has named
//	exits N PROGRAM [ARG...]           exec, and fails unless the program ends with that exit status
//
// A call without an answer gets status 500, which no script expects.
func TestCommands(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			f := newFakeAPI()
			env.Values["api"] = f
			env.Defer(f.close)
			env.Setenv("PORTREEVE_URL", f.url())
			env.Setenv("api", f.url())
			env.Setenv("PORTREEVE_KEY", testKey)
			env.Setenv("TZ", "UTC")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"answer": answer, "asked": asked, "unasked": unasked, "exits": exits,
		},
	})
}

func answer(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 && len(args) != 4 {
		ts.Fatalf("usage: answer METHOD PATH STATUS [FILE]")
	}
	code, err := strconv.Atoi(args[2])
	ts.Check(err)
	a := reply{status: code}
	if len(args) == 4 {
		a.body, a.kind = ts.ReadFile(args[3]), filepath.Ext(args[3])
	}
	ts.Value("api").(*fakeAPI).answer(args[0]+" "+args[1], a)
}

func asked(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 && len(args) != 3 {
		ts.Fatalf("usage: [!] asked METHOD PATH [REGEXP]")
	}
	want := regexp.MustCompile(strings.Join(args[2:], ""))
	found, rest := ts.Value("api").(*fakeAPI).take(args[0]+" "+args[1], want)
	if found == neg {
		ts.Fatalf("asked %s %s %v: %v, the calls were:\n%s", args[0], args[1], want, found, rest)
	}
}

func unasked(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: unasked")
	}
	if left := ts.Value("api").(*fakeAPI).left(); left != "" {
		ts.Fatalf("calls that were not asked for:\n%s", left)
	}
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits N PROGRAM [ARG...]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		ended, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = ended.ExitCode()
	}
	if got != want {
		ts.Fatalf("%s ended with status %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}

// TestEachVerbHasItsScript: a verb that nobody tried would be the first one to rot.
func TestEachVerbHasItsScript(t *testing.T) {
	a := &app{}
	for _, c := range a.root().Commands() {
		if c.Hidden {
			continue
		}
		if _, err := os.Stat(filepath.Join("testdata", "script", c.Name()+".txtar")); err != nil {
			t.Error(fmt.Errorf("%s: %w", c.CommandPath(), err))
		}
	}
}
