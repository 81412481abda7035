package edge

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/egress/proxy"
	"portreeve.dev/gateway/feed"
)

type howTo feed.Records

func (h howTo) Records(string) feed.Records { return feed.Records(h) }

func allowed(path string) *decisions.Decision {
	return &decisions.Decision{ID: decisions.NewID(), Time: time.Now(), Org: org, Sandbox: sbx, Layer: "http", Level: "http", Verdict: "allow", Reason: "allowed",
		Host: "good.test", Port: 443, Path: path}
}

// full is a spool on a disk without room, and how to make some.
func full(t *testing.T) (*decisions.Spool, func()) {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	s, err := decisions.Open(dir, decisions.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Record(t.Context(), allowed("/")); err != nil {
		t.Fatal(err)
	}
	ballast := filepath.Join(dir, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for piece := make([]byte, 4096); err == nil; _, err = f.Write(piece) {
	}
	for range 200 { // what the file itself has left
		if s.Record(t.Context(), allowed("/")) != nil {
			return s, func() { os.Remove(ballast) }
		}
	}
	t.Fatal("a full disk takes decisions")
	return nil, nil
}

func TestBestEffortNeverCoversASecret(t *testing.T) {
	secret := func() *decisions.Decision {
		d := allowed("/")
		d.Secrets = []decisions.Use{{Secret: "sec_1", Version: 1, Place: "header:authorization"}}
		return d
	}
	spool, makeRoom := full(t)
	strict := newRecorder(spool, howTo{}, slog.New(slog.DiscardHandler))
	best := newRecorder(spool, howTo{BestEffort: true}, slog.New(slog.DiscardHandler))
	lost := spool.Lost()
	for name, c := range map[string]struct {
		r    *recorder
		d    *decisions.Decision
		goes bool
	}{
		"strict":                    {strict, allowed("/"), false},
		"best effort":               {best, allowed("/"), true},
		"best effort with a secret": {best, secret(), false},
	} {
		if err := c.r.Record(t.Context(), c.d); (err == nil) != c.goes {
			t.Errorf("%s: %v", name, err)
		}
		lost++
		c.r.Close(t.Context(), c.d.ID, proxy.Closing{}) // of nothing
	}
	if spool.Lost() != lost {
		t.Errorf("%d lost, want %d: each is one", spool.Lost(), lost)
	}
	makeRoom()
	for name, r := range map[string]*recorder{"strict": strict, "best effort": best} {
		if err := r.Record(t.Context(), secret()); err != nil {
			t.Errorf("%s, with room: %v", name, err)
		}
	}
}

// A sandbox can't get out of the record by filling its budget, also where the org takes losses.
func TestBestEffortDoesNotCoverABudget(t *testing.T) {
	s, err := decisions.Open(t.TempDir(), decisions.Config{Rate: 1e-9, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := newRecorder(s, howTo{BestEffort: true}, slog.New(slog.DiscardHandler))
	if err := r.Record(t.Context(), allowed("/")); err != nil {
		t.Fatal(err)
	}
	if err := r.Record(t.Context(), allowed("/")); !errors.Is(err, decisions.ErrBudget) {
		t.Errorf("beyond the budget: %v", err)
	}
}

func TestPathIsCutBeforeTheSpool(t *testing.T) {
	s, err := decisions.Open(t.TempDir(), decisions.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, paths := range []string{"full", "prefix", "none", ""} {
		r := newRecorder(s, howTo{Paths: paths}, slog.New(slog.DiscardHandler))
		d := allowed("/a/b/canary")
		if err := r.Record(context.Background(), d); err != nil {
			t.Fatal(err)
		}
		r.Close(t.Context(), d.ID, proxy.Closing{Status: 200})
	}
	sent, err := s.Batch(100, true)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/a/b/canary", "/a/b/canary", "/a/b/…", "/a/b/…", "", "", "", ""}
	for i, row := range sent.Rows {
		if d, err := row.Decision(); err != nil || d.Path != want[i] || d.Closed != (i%2 == 1) {
			t.Errorf("row %d: %q, closed %v, %v; want %q", i, d.Path, d.Closed, err, want[i])
		}
	}
}

func TestCountedFlowsCloseOneByOne(t *testing.T) {
	s, err := decisions.Open(t.TempDir(), decisions.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder(s, howTo{}, slog.New(slog.DiscardHandler))
	var ids []string
	for range 3 {
		d := allowed("/")
		d.Fold = true
		if err := r.Record(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, d.ID)
	}
	beside := allowed("/") // comes with its end
	beside.Closed, beside.Until = true, beside.Time
	if err := r.Record(t.Context(), beside); err != nil || len(r.open) != 1 {
		t.Errorf("%d are open: %v", len(r.open), err)
	}
	for _, id := range ids {
		r.Close(t.Context(), id, proxy.Closing{BytesIn: 7})
	}
	if len(r.open) != 0 || ids[0] != ids[2] {
		t.Errorf("%d are still open; ids %v", len(r.open), ids)
	}
	s.Close()
}
