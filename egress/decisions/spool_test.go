package decisions_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"portreeve.dev/egress/decisions"
)

func open(t testing.TB, dir string, cfg decisions.Config) *decisions.Spool {
	t.Helper()
	s, err := decisions.Open(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func decision(org, sandbox string) *decisions.Decision {
	return &decisions.Decision{ID: decisions.NewID(), Time: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Org: org, Sandbox: sandbox, Incarnation: 1,
		Layer: "connect", Level: "sni", Verdict: "allow", Reason: "allowed", Rule: "r1", RuleLayer: "ceiling", Revision: 7, Host: "good.test", Port: 443, Protocol: "https"}
}

func record(t testing.TB, s *decisions.Spool, d *decisions.Decision) {
	t.Helper()
	if err := s.Record(context.Background(), d); err != nil {
		t.Fatal(err)
	}
}

func batch(t testing.TB, s *decisions.Spool) []decisions.Row {
	t.Helper()
	sent, err := s.Batch(100000, false)
	if err != nil {
		t.Fatal(err)
	}
	return sent.Rows
}

// flush has what closes written.
func flush(t testing.TB, s *decisions.Spool) {
	t.Helper()
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestRecordThenClose(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := t.TempDir()
	s := open(t, dir, decisions.Config{})
	d := decision("org_a", "sbx_a")
	record(t, s, d)
	<-s.Ready()
	if err := s.CloseFlow(context.Background(), d, decisions.Closing{Status: 200, BytesOut: 10, BytesIn: 20, DurationMS: 5}); err != nil {
		t.Fatal(err)
	}
	flush(t, s)
	rows := batch(t, s)
	if len(rows) != 2 || rows[0].Seq != 1 || rows[1].Seq != 2 || rows[0].Org != "org_a" {
		t.Fatalf("rows: %+v", rows)
	}
	first, err := rows[0].Decision()
	if err != nil || cmp.Diff(*d, first) != "" {
		t.Errorf("first row (%v):\n%s", err, cmp.Diff(*d, first))
	}
	last, _ := rows[1].Decision()
	if last.ID != d.ID || !last.Closed || last.Status != 200 || last.BytesOut != 10 || last.BytesIn != 20 || last.DurationMS != 5 {
		t.Errorf("closing row: %+v", last)
	}
	if s.Lost() != 0 {
		t.Errorf("lost %d", s.Lost())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, f := range files {
		if st, _ := os.Stat(f); strings.HasSuffix(f, "-shm") || st.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", f, st.Mode())
		}
	}
}

func TestOnlyAcknowledgedLeaves(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, decisions.Config{})
	for range 5 {
		record(t, s, decision("org_a", "sbx_a"))
	}
	batch(t, s)
	if got := len(batch(t, s)); got != 5 {
		t.Fatalf("a second batch has %d rows: reading removed some", got)
	}
	if sent, _ := s.Batch(2, false); len(sent.Rows) != 2 || sent.Rows[1].Seq != 2 || !sent.More {
		t.Errorf("a batch of two: %+v", sent)
	}
	if err := s.Ack(s.ID(), 3); err != nil {
		t.Fatal(err)
	}
	if rows := batch(t, s); len(rows) != 2 || rows[0].Seq != 4 {
		t.Fatalf("after acknowledging 3 of 5: %v", rows)
	}
	if err := s.Ack(s.ID(), 5); err != nil {
		t.Fatal(err)
	}
	if s.Size() != 0 {
		t.Errorf("an empty spool holds %d bytes", s.Size())
	}
	id := s.ID()
	s.Close()
	s = open(t, dir, decisions.Config{})
	record(t, s, decision("org_a", "sbx_a"))
	if rows := batch(t, s); len(rows) != 1 || rows[0].Seq != 6 || s.ID() != id {
		t.Errorf("an emptied, reopened spool goes on with %v", rows)
	}
}

func TestRefusedLeavesGap(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, decisions.Config{})
	record(t, s, decision("org_a", "sbx_a")) // 1
	if err := s.Record(context.Background(), &decisions.Decision{Org: "org_a"}); err == nil {
		t.Fatal("a decision without an id was recorded") // 2
	}
	record(t, s, decision("org_a", "sbx_a")) // 3
	if err := s.Record(context.Background(), &decisions.Decision{Org: "org_a"}); err == nil {
		t.Fatal("a decision without an id was recorded") // 4
	}
	if s.Lost() != 2 {
		t.Errorf("lost %d, want 2", s.Lost())
	}
	s.Close()
	if err := s.Record(context.Background(), decision("org_a", "sbx_a")); !errors.Is(err, decisions.ErrClosed) {
		t.Errorf("recording into a closed spool: %v", err)
	}
	s = open(t, dir, decisions.Config{})
	record(t, s, decision("org_a", "sbx_a")) // 5
	var seqs []uint64
	for _, r := range batch(t, s) {
		seqs = append(seqs, r.Num)
	}
	if d := cmp.Diff([]uint64{1, 3, 5}, seqs); d != "" || s.Lost() != 2 {
		t.Errorf("lost %d; sequence:\n%s", s.Lost(), d)
	}
}

func TestFullSpoolRefuses(t *testing.T) {
	s := open(t, t.TempDir(), decisions.Config{MaxBytes: 4096, OrgShare: 1})
	var last *decisions.Decision
	for err := error(nil); ; {
		d := decision("org_a", "sbx_a")
		if err = s.Record(context.Background(), d); err != nil {
			if !errors.Is(err, decisions.ErrFull) && !errors.Is(err, decisions.ErrShare) {
				t.Fatal(err)
			}
			break
		}
		last = d
		if len(batch(t, s)) > 100 {
			t.Fatal("a spool of 4 KiB took 100 decisions")
		}
	}
	if err := s.CloseFlow(context.Background(), last, decisions.Closing{Status: 200}); err != nil {
		t.Errorf("closing an allowed flow of a full spool: %v", err)
	}
	flush(t, s)
	rows := batch(t, s)
	if err := s.Ack(s.ID(), rows[len(rows)-1].Seq); err != nil {
		t.Fatal(err)
	}
	record(t, s, decision("org_a", "sbx_a"))
}

func TestOrgShare(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, decisions.Config{MaxBytes: 40960, OrgShare: 0.25})
	fill := func() (n int) {
		for ; n < 1000; n++ {
			if err := s.Record(context.Background(), decision("org_a", "sbx_a")); err != nil {
				if !errors.Is(err, decisions.ErrShare) {
					t.Fatal(err)
				}
				return n
			}
		}
		return n
	}
	if n := fill(); n < 5 || n > 50 {
		t.Fatalf("org a wrote %d decisions into a share of 10 KiB", n)
	}
	record(t, s, decision("org_b", "sbx_b"))
	s.Close()
	s = open(t, dir, decisions.Config{MaxBytes: 40960, OrgShare: 0.25})
	if n := fill(); n != 0 {
		t.Errorf("after reopening org a has room for %d more", n)
	}
	record(t, s, decision("org_b", "sbx_b"))
}

func TestSandboxBudget(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	s := open(t, t.TempDir(), decisions.Config{Rate: 1, Burst: 3, Now: func() time.Time { return now }})
	for range 3 {
		record(t, s, decision("org_a", "sbx_a"))
	}
	for range 10 {
		if err := s.Record(context.Background(), decision("org_a", "sbx_a")); !errors.Is(err, decisions.ErrBudget) {
			t.Fatalf("beyond the budget: %v", err)
		}
	}
	record(t, s, decision("org_a", "sbx_other"))
	rows := batch(t, s)
	if len(rows) != 5 || s.Lost() != 9 {
		t.Fatalf("%d rows, %d lost; want 3 and one line about the overrun and the neighbour's, and 9", len(rows), s.Lost())
	}
	if d, _ := rows[3].Decision(); d.Verdict != "deny" || d.Reason != "budget" || d.Sandbox != "sbx_a" {
		t.Errorf("the line about the overrun: %+v", d)
	}
	now = now.Add(2 * time.Second)
	record(t, s, decision("org_a", "sbx_a"))
}

// A line about an overrun that was written under a clock that was ahead doesn't keep the next one away until then.
func TestOverrunIsToldAfterAClockAhead(t *testing.T) {
	right := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	now := right.Add(1000 * time.Hour)
	s := open(t, t.TempDir(), decisions.Config{Rate: 1, Burst: 1, Now: func() time.Time { return now }})
	overrun := func() int {
		t.Helper()
		for {
			if err := s.Record(context.Background(), decision("org_a", "sbx_a")); errors.Is(err, decisions.ErrBudget) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		told := 0
		for _, r := range batch(t, s) {
			if d, _ := r.Decision(); d.Reason == "budget" {
				told++
			}
		}
		return told
	}
	if n := overrun(); n != 1 {
		t.Fatalf("%d lines about the first overrun", n)
	}
	now = right
	if n := overrun(); n != 2 {
		t.Errorf("%d lines about two overruns, of which one was under a clock that was ahead", n)
	}
}

func TestCancelledCallerIsRefused(t *testing.T) {
	s := open(t, t.TempDir(), decisions.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 100 { // select picks at random among what is ready
		if err := s.Record(ctx, decision("org_a", "sbx_a")); err != nil {
			return
		}
	}
	t.Error("a hundred cancelled calls were all recorded without an error")
}

func TestLongPathIsCut(t *testing.T) {
	s := open(t, t.TempDir(), decisions.Config{})
	d := decision("org_a", "sbx_a")
	d.Path = "/" + strings.Repeat("x", 1<<20)
	record(t, s, d)
	if got, _ := batch(t, s)[0].Decision(); len(got.Path) > 3000 || len(d.Path) != 1<<20+1 {
		t.Errorf("a path of 1 MiB is kept as %d bytes, the caller's has %d", len(got.Path), len(d.Path))
	}
}

func TestFullDiskRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	s := open(t, dir, decisions.Config{OrgShare: 1, Rate: 1e6, Burst: 1e6})
	acked := 0
	var err error
	for acked = 0; acked < 10000; acked++ {
		if err = s.Record(context.Background(), decision("org_a", "sbx_a")); err != nil {
			break
		}
	}
	if err == nil {
		t.Fatal("a disk of 512 KiB took 10,000 decisions")
	}
	if got := len(batch(t, s)); got != acked {
		t.Errorf("%d acknowledged, %d found", acked, got)
	}
	if s.Lost() != 1 {
		t.Errorf("lost %d, want 1", s.Lost())
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	record(t, s, decision("org_a", "sbx_a")) // the same spool goes on by itself
	rows := batch(t, s)
	if last := rows[len(rows)-1]; len(rows) != acked+1 || last.Num != uint64(acked+2) {
		t.Errorf("after room was made: %d rows, the last is %d", len(rows), last.Num)
	}
}

func TestReadOnlyDirectoryRefuses(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	open(t, dir, decisions.Config{}).Close()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if s, err := decisions.Open(dir, decisions.Config{}); err == nil {
		s.Close()
		t.Error("a spool was opened on a read-only file system")
	}
	if _, err := decisions.Open(filepath.Join(t.TempDir(), "missing"), decisions.Config{}); err == nil {
		t.Error("a spool was opened in a directory that doesn't exist")
	}
}

func TestSecondOpenRefused(t *testing.T) {
	dir := t.TempDir()
	open(t, dir, decisions.Config{})
	if s, err := decisions.Open(dir, decisions.Config{}); err == nil {
		s.Close()
		t.Error("two spools on one file")
	}
}

func TestDamagedFileRefused(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "spool.db"), []byte(strings.Repeat("not a database", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := decisions.Open(dir, decisions.Config{}); err == nil {
		s.Close()
		t.Error("a damaged file was opened")
	}
}

func TestManyCallers(t *testing.T) {
	s := open(t, t.TempDir(), decisions.Config{Rate: 1e6, Burst: 1e6})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for range 50 {
				if err := s.Record(context.Background(), decision(fmt.Sprintf("org_%d", i), "sbx")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	rows := batch(t, s)
	for i, r := range rows {
		if r.Seq != uint64(i+1) {
			t.Fatalf("row %d has number %d", i, r.Seq)
		}
	}
	if len(rows) != 1600 {
		t.Errorf("%d rows", len(rows))
	}
}
