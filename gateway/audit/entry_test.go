package audit_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"portreeve.dev/gateway/audit"
)

func chain(n int) []audit.Entry {
	prev := audit.Genesis("org_1")
	var all []audit.Entry
	for i := range n {
		e := audit.Entry{
			ID: "aud_x", Org: "org_1", Seq: int64(i + 1), Time: time.Date(2026, 1, 2, 3, 4, i, 5000, time.UTC), ActorKind: "key", Actor: "key_1",
			Action: audit.PolicyUpdate, Object: "policy:web", Outcome: audit.Success, Address: "192.0.2.1", RequestID: "req_1",
			Details: map[string]string{"version": "3", "name": "x"}, Prev: prev,
		}
		e.Hash = audit.Sum(e)
		prev = e.Hash
		all = append(all, e)
	}
	return all
}

func TestEveryFieldIsChained(t *testing.T) {
	if err := audit.Verify(audit.Genesis("org_1"), chain(3)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*audit.Entry){
		"ID": func(e *audit.Entry) { e.ID = "aud_y" }, "Org": func(e *audit.Entry) { e.Org = "org_2" },
		"Time": func(e *audit.Entry) { e.Time = e.Time.Add(time.Microsecond) }, "ActorKind": func(e *audit.Entry) { e.ActorKind = "system" },
		"Actor": func(e *audit.Entry) { e.Actor = "key_2" }, "Action": func(e *audit.Entry) { e.Action = audit.PolicyDelete },
		"Object": func(e *audit.Entry) { e.Object = "policy:db" }, "Outcome": func(e *audit.Entry) { e.Outcome = audit.Failure },
		"Address": func(e *audit.Entry) { e.Address = "" }, "RequestID": func(e *audit.Entry) { e.RequestID = "req_2" },
		"a detail":          func(e *audit.Entry) { e.Details["version"] = "4" },
		"one detail less":   func(e *audit.Entry) { delete(e.Details, "name") },
		"one detail more":   func(e *audit.Entry) { e.Details["more"] = "" },
		"its hash":          func(e *audit.Entry) { e.Hash = chain(1)[0].Hash },
		"its predecessor":   func(e *audit.Entry) { e.Prev = audit.Genesis("org_1") },
		"its number":        func(e *audit.Entry) { e.Seq = 9 },
		"another time zone": func(e *audit.Entry) { e.Time = e.Time.In(time.FixedZone("x", 3600)) },
	} {
		all := chain(3)
		all[1].Details = maps.Clone(all[1].Details)
		change(&all[1])
		err := audit.Verify(audit.Genesis("org_1"), all)
		if name == "another time zone" { // the same instant: nothing was changed
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		} else if !errors.Is(err, audit.ErrBroken) {
			t.Errorf("changing %s was not noticed: %v", name, err)
		}
	}
}

func TestVerifyNoticesGapsAndSwaps(t *testing.T) {
	for name, change := range map[string]func([]audit.Entry) []audit.Entry{
		"one left out":   func(a []audit.Entry) []audit.Entry { return slices.Delete(a, 1, 2) },
		"one doubled":    func(a []audit.Entry) []audit.Entry { return slices.Insert(a, 1, a[1]) },
		"two swapped":    func(a []audit.Entry) []audit.Entry { a[1], a[2] = a[2], a[1]; return a },
		"the first gone": func(a []audit.Entry) []audit.Entry { return a[1:] },
		"one put between": func(a []audit.Entry) []audit.Entry {
			e := a[1]
			e.ID = "aud_z"
			e.Hash = audit.Sum(e)
			return slices.Insert(a, 2, e)
		},
		"a gap in numbers over a whole chain": func(a []audit.Entry) []audit.Entry {
			a[3].Seq++
			a[3].Hash = audit.Sum(a[3])
			return a
		},
	} {
		if err := audit.Verify(audit.Genesis("org_1"), change(chain(4))); !errors.Is(err, audit.ErrBroken) {
			t.Errorf("%s: %v", name, err)
		}
	}
	all := chain(4)
	if err := audit.Verify(all[1].Hash, all[2:]); err != nil {
		t.Errorf("a run from the middle: %v", err)
	}
	if err := audit.Verify(audit.Genesis("org_2"), all); !errors.Is(err, audit.ErrBroken) {
		t.Errorf("another org's chain: %v", err)
	}
}

func TestFieldsDontRunTogether(t *testing.T) {
	base := chain(1)[0]
	moved := base
	moved.Actor, moved.ActorKind = base.Actor[1:], base.ActorKind+base.Actor[:1]
	if audit.Sum(base) == audit.Sum(moved) {
		t.Error("a byte moved from one field to the one before hashes the same")
	}
	one, two := base, base
	one.Details, two.Details = map[string]string{"a": "bc"}, map[string]string{"ab": "c"}
	if audit.Sum(one) == audit.Sum(two) {
		t.Error("a byte moved from a detail's value to its name hashes the same")
	}
}

func TestActionsAreKnown(t *testing.T) {
	seen := map[audit.Action]bool{}
	for _, a := range audit.Actions() {
		if !a.Known() || seen[a] {
			t.Errorf("%q is unknown, or twice in the list", a)
		}
		seen[a] = true
	}
	if audit.Action("made.up").Known() || audit.Action("").Known() {
		t.Error("an unknown action is known")
	}
}
