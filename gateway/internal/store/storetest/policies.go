package storetest

import (
	"errors"
	"strings"
	"testing"

	"portreeve.dev/gateway/internal/store"
)

// policiesAreBounded: an org's documents are bounded together, by bytes, and those that are gone don't count.
func policiesAreBounded(t *testing.T, open Open) {
	w := NewWorld(t, open, store.Options{})
	by := w.Org("one")
	half := `{"message":"` + strings.Repeat("é", store.PolicyBytes/4-20) + `"}` // two bytes each
	for range 3 {                                                               // replaced ones don't count
		_, _, err := w.Policy(by, "a", half, store.AnyVersion)
		w.must(err)
	}
	_, _, err := w.Policy(by, "b", half, 0)
	w.must(err)
	big := `{"message":"` + strings.Repeat("x", 100) + `"}`
	if _, _, err := w.Policy(by, "c", big, 0); !errors.Is(err, store.ErrLimit) {
		t.Errorf("one more: %v", err)
	}
	if _, err := w.Store.Policy(ctx(t), by.Principal.Org, "c"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("what was refused is stored: %v", err)
	}
	_, _, err = w.Policy(w.Org("two"), "c", big, 0) // another org's don't count
	w.must(err)
	_, _, err = w.Policy(by, "b", `{}`, 1)
	w.must(err)
	_, _, err = w.Policy(by, "c", big, 0)
	w.must(err)
}
