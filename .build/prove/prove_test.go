package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// small is a module with one guard, one test that notices its absence and one that has nothing to do with it.
const small = `
-- go.mod --
module small.test

go 1.27
-- door/doc.go --
// Package door opens for friends.
//
// # Security invariants
//
//   - DO-1: only a friend gets in,
//     at any hour (TestStrangerStaysOut).
//
// # Not here
//
// Windows.
package door
-- door/door.go --
package door

// Open says whether name may come in.
func Open(name string) bool {
	if name != "friend" {
		return false
	}
	return true
}
-- door/door_test.go --
package door

import "testing"

func TestStrangerStaysOut(t *testing.T) {
	if Open("stranger") {
		t.Error("a stranger got in")
	}
}

func TestFriendGetsIn(t *testing.T) {
	if !Open("friend") {
		t.Error("a friend stayed out")
	}
}
`

const goodProof = `invariant: DO-1      design: 2, 3     test: ./door TestStrangerStaysOut
-- door.go: now --
	if name != "friend" {
-- door.go: weakened --
	if name == "" {
`

func module(t *testing.T, proof string) string {
	t.Helper()
	root := t.TempDir()
	write := func(name string, data []byte) {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range txtar.Parse([]byte(small)).Files {
		write(f.Name, f.Data)
	}
	if proof != "" {
		write("door/testdata/prove/DO-1.txtar", []byte(proof))
	}
	return root
}

func TestProofHolds(t *testing.T) {
	var out bytes.Buffer
	if err := run(context.Background(), []string{"-root", module(t, goodProof)}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"DO-1", "2, 3", "1 of 1", "1 passed, 0 failed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, out.String())
		}
	}
}

func TestWhatDoesNotHoldIsTriedAgain(t *testing.T) {
	root := module(t, goodProof)
	// A test that the machine disturbs twice: beside the package's other tests, and when it is repeated.
	disturbed := `package door

import (
	"os"
	"testing"
)

func TestStrangerStaysOut(t *testing.T) {
	for _, time := range []string{"once", "twice"} {
		if err := os.Mkdir(time, 0o700); err == nil {
			t.Fatal("disturbed")
		}
	}
	if Open("stranger") {
		t.Error("a stranger got in")
	}
}
`
	if err := os.WriteFile(filepath.Join(root, "door/door_test.go"), []byte(disturbed), 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(context.Background(), []string{"-root", root}, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, want := range []string{"FAIL DO-1", "ok   DO-1", "1 passed, 0 failed", "at the first try, beside others"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}

func TestProofsThatDoNotHold(t *testing.T) {
	for name, c := range map[string]struct{ from, to, want string }{
		"the weakened form does not compile":  {`name == ""`, `nonsense`, "does not compile when weakened: door/door.go:5:5"},
		"the test still passes":               {`name == ""`, `name != "friend" || name == ""`, "still passes"},
		"the test panics":                     {`if name == "" {`, `if panic("no"); name == "" {`, "not by its assertion"},
		"the text does not occur":             {`if name != "friend" {`, `if name != "foe" {`, "occurs 0 times"},
		"the text occurs twice":               {"\tif name != \"friend\" {", "return", "occurs 2 times"},
		"the test does not exist":             {"TestStrangerStaysOut", "TestNobody", "does not have"},
		"the invariant is not promised":       {"invariant: DO-1", "invariant: DO-2", "begin with"},
		"the test is not the promise's":       {"TestStrangerStaysOut", "TestFriendGetsIn", "the promise of DO-1 does not"},
		"a key is unknown":                    {"design: 2", "desing: 2", "is not like"},
		"the weakened form is the same":       {`name == ""`, `name != "friend"`, "the same as now"},
		"a section has no partner":            {"door.go: weakened", "door.go: later", "no pair"},
		"a section leaves the package folder": {"-- door.go: now --", "-- ../door.go: now --", "no pair"},
	} {
		t.Run(name, func(t *testing.T) {
			proof := strings.Replace(goodProof, c.from, c.to, 1)
			if proof == goodProof {
				t.Fatal("the case changes nothing")
			}
			var out bytes.Buffer
			if err := run(context.Background(), []string{"-root", module(t, proof)}, &out); err == nil {
				out.WriteString("no error")
			} else {
				out.WriteString(err.Error())
			}
			if !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), "no error") {
				t.Errorf("want %q in:\n%s", c.want, out.String())
			}
		})
	}
}

func TestInvariantWithoutProofIsAProblem(t *testing.T) {
	root := module(t, "")
	var out bytes.Buffer
	if err := run(context.Background(), []string{"-root", root, "-check"}, &out); err == nil {
		t.Fatal("an invariant without a proof passed")
	}
	excuse := filepath.Join(root, excuseFile)
	if err := os.MkdirAll(filepath.Dir(excuse), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(excuse, []byte("# why not\nDO-1: shown by hand only\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := run(context.Background(), []string{"-root", root, "-check"}, &out); err != nil {
		t.Errorf("with a reason it should pass: %v\n%s", err, out.String())
	}
}

func TestPartsAreTheWhole(t *testing.T) {
	all := make([]*proof, 11)
	for i := range all {
		all[i] = &proof{}
	}
	seen := make(map[*proof]int)
	for _, part := range []string{"0/3", "1/3", "2/3"} {
		some, err := partOf(all, part)
		if err != nil || len(some) < 3 || len(some) > 4 {
			t.Fatalf("%s: %d proofs, %v", part, len(some), err)
		}
		for _, p := range some {
			seen[p]++
		}
	}
	if len(seen) != len(all) {
		t.Errorf("%d of %d proofs are in one of three parts", len(seen), len(all))
	}
	if whole, err := partOf(all, "0/1"); err != nil || len(whole) != len(all) {
		t.Errorf("the only part has %d, %v", len(whole), err)
	}
	for _, wrong := range []string{"", "1", "3/3", "-1/3", "0/0", "a/b"} {
		if some, err := partOf(all, wrong); err == nil {
			t.Errorf("%q gave %d proofs", wrong, len(some))
		}
	}
}
