package decisions

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// at opens the spool of dir on a machine that was booted as boot.
func at(t testing.TB, dir, boot string) *Spool {
	t.Helper()
	cfg, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s, err := openAt(dir, cfg, boot)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// crash ends a spool as the death of the process would: nothing is written any more, and the lock goes.
func (s *Spool) crash() {
	s.queue.close()
	<-s.ended
	s.closed = true
	s.file.fail()
	s.file.book.Load().file.Close()
}

func (s *Spool) write(t testing.TB, n int) {
	t.Helper()
	for range n {
		d := &Decision{ID: NewID(), Org: "org_a", Sandbox: "sbx_a", Layer: "dns", Verdict: "allow", Time: time.Now()}
		if err := s.Record(context.Background(), d); err != nil {
			t.Fatal(err)
		}
	}
}

// spoil loses one line.
func (s *Spool) spoil(t testing.TB) {
	t.Helper()
	if err := s.Record(context.Background(), &Decision{Org: "org_a"}); !errors.Is(err, errDecision) {
		t.Fatal(err)
	}
}

// A books is the other side: it knows every number that arrived.
type books struct {
	got    map[string]map[uint64]string // by spool: the decision behind each number
	upto   map[string]uint64
	unsure map[string]uint64
}

func newBooks() *books {
	return &books{map[string]map[uint64]string{}, map[string]uint64{}, map[string]uint64{}}
}

// take ships everything, and fails if a number stands for two decisions.
func (b *books) take(t testing.TB, s *Spool) {
	t.Helper()
	sent, err := s.Batch(1000, false)
	if err != nil {
		t.Fatal(err)
	}
	if b.got[sent.Spool] == nil {
		b.got[sent.Spool] = map[uint64]string{}
	}
	for _, r := range sent.Rows {
		d, err := r.Decision()
		if err != nil {
			t.Fatal(err)
		}
		if before, ok := b.got[sent.Spool][r.Num]; ok && before != d.ID {
			t.Errorf("number %d of %s stands for two decisions", r.Num, sent.Spool)
		}
		b.got[sent.Spool][r.Num] = d.ID
	}
	o := sent.Orgs["org_a"]
	b.upto[sent.Spool], b.unsure[sent.Spool] = o.Upto, o.Unsure
	if len(sent.Rows) > 0 {
		if err := s.Ack(sent.Spool, sent.Rows[len(sent.Rows)-1].Seq); err != nil {
			t.Fatal(err)
		}
	}
	s.Told(sent)
}

// missing is how many numbers of a spool have no row.
func (b *books) missing(spool string) uint64 { return b.upto[spool] - uint64(len(b.got[spool])) }

func TestLossesSurviveTheProcess(t *testing.T) {
	dir, b := t.TempDir(), newBooks()
	s := at(t, dir, "boot1")
	s.write(t, 3)
	s.spoil(t)
	b.take(t, s)
	s.spoil(t) // after the last commit: no row will tell
	s.spoil(t)
	s.crash()
	s = at(t, dir, "boot1")
	defer s.Close()
	s.write(t, 1)
	b.take(t, s)
	if got := b.missing(s.ID()); got != 3 || s.Lost() != 3 || b.unsure[s.ID()] != 0 {
		t.Errorf("%d numbers are missing, %d counted as lost (%d unsure); 3 were lost", got, s.Lost(), b.unsure[s.ID()])
	}
}

// TestNumbersAreNeverGivenTwice takes away each part of the spool in turn.
func TestNumbersAreNeverGivenTwice(t *testing.T) {
	copyOf := func(t *testing.T, dir string) string {
		to := t.TempDir()
		if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		return to
	}
	restore := func(t *testing.T, from, dir string, names ...string) {
		for _, name := range names {
			os.Remove(filepath.Join(dir, name))
			if b, err := os.ReadFile(filepath.Join(from, name)); err == nil {
				os.WriteFile(filepath.Join(dir, name), b, 0o600)
			}
		}
	}
	all := []string{fileName, fileName + "-wal", ledgerName}
	for name, c := range map[string]struct {
		boot    string
		between func(t *testing.T, old, dir string)
		unsure  bool
		another bool // the spool has another name afterwards
	}{
		"nothing happens":                 {"boot1", func(*testing.T, string, string) {}, false, false},
		"the machine goes down":           {"boot2", func(*testing.T, string, string) {}, true, false},
		"the machine loses the last rows": {"boot2", func(t *testing.T, old, dir string) { restore(t, old, dir, all[:2]...) }, true, false},
		"the ledger is deleted":           {"boot1", func(t *testing.T, _, dir string) { os.Remove(filepath.Join(dir, ledgerName)) }, true, false},
		"the ledger is damaged": {"boot1", func(t *testing.T, _, dir string) {
			os.WriteFile(filepath.Join(dir, ledgerName), make([]byte, 5000), 0o600)
		}, true, false},
		"the ledger is an older one": {"boot1", func(t *testing.T, old, dir string) { restore(t, old, dir, ledgerName) }, true, false},
		"the file is an older one":   {"boot1", func(t *testing.T, old, dir string) { restore(t, old, dir, all[:2]...) }, true, false},
		"the file is deleted": {"boot1", func(t *testing.T, _, dir string) {
			os.Remove(filepath.Join(dir, fileName))
			os.Remove(filepath.Join(dir, fileName+"-wal"))
		}, false, true},
		"file and ledger are deleted both": {"boot1", func(t *testing.T, _, dir string) { restore(t, t.TempDir(), dir, all...) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, b := t.TempDir(), newBooks()
			s := at(t, dir, "boot1")
			s.write(t, 5)
			b.take(t, s)
			id := s.ID()
			s.crash()
			old := copyOf(t, dir)
			s = at(t, dir, "boot1")
			s.write(t, 5)
			b.take(t, s)
			s.crash()
			c.between(t, old, dir)
			s = at(t, dir, c.boot)
			defer s.Close()
			s.write(t, 5)
			b.take(t, s)
			if (s.ID() != id) != c.another {
				t.Errorf("the spool is %s, it was %s", s.ID(), id)
			}
			// What an older file says to be unsure may have arrived before; what is missing is never more.
			if got := b.unsure[s.ID()]; (got > 0) != c.unsure || got < b.missing(s.ID()) {
				t.Errorf("%d numbers are unsure, %d are missing", got, b.missing(s.ID()))
			}
		})
	}
}

// TestNumbersOutliveTheirRows: what a process that died had recorded is shipped and removed by the next one, which then dies too.
// Nobody has a row any more, and the numbers go on.
func TestNumbersOutliveTheirRows(t *testing.T) {
	dir, b := t.TempDir(), newBooks()
	s := at(t, dir, "boot1")
	s.write(t, 5)
	s.crash()
	s = at(t, dir, "boot1")
	b.take(t, s)
	s.crash()
	s = at(t, dir, "boot1")
	defer s.Close()
	s.write(t, 5)
	b.take(t, s)
	if got := b.got[s.ID()]; len(got) != 10 || got[10] == "" || s.Lost() != 0 {
		t.Errorf("%d decisions have numbers of their own up to 10, %d lost: %v", len(got), s.Lost(), got)
	}
}

// An older copy of the whole directory agrees with itself. Only the other side can know, and says so.
func TestOlderCopyGoesOnBehindWhatWasSeen(t *testing.T) {
	dir, b := t.TempDir(), newBooks()
	s := at(t, dir, "boot1")
	s.write(t, 5)
	s.Close()
	old := t.TempDir()
	if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	s = at(t, dir, "boot1")
	s.write(t, 5)
	b.take(t, s)
	sent, err := s.Batch(1, false)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = at(t, old, "boot1")
	defer s.Close()
	if err := s.Skip(sent.Spool, "org_a", sent.Orgs["org_a"].Reserved+1); err != nil {
		t.Fatal(err)
	}
	s.write(t, 5)
	b.take(t, s)
	if len(b.got[s.ID()]) != 15 || b.unsure[s.ID()] == 0 {
		t.Errorf("%d decisions under numbers of their own, %d unsure", len(b.got[s.ID()]), b.unsure[s.ID()])
	}
	before := s.Lost()
	if err := s.Skip(sent.Spool, "org_a", 3); err != nil || s.Lost() != before {
		t.Errorf("going on behind an old number: %v, %d lost", err, s.Lost())
	}
}

// TestMovedFileIsShippedFirst: with the file taken away under the running process nothing is recorded, what it holds still gets
// out, and then there is a new one.
func TestMovedFileIsShippedFirst(t *testing.T) {
	for name, takeAway := range map[string]func(string) error{
		"deleted": os.Remove,
		"moved":   func(p string) error { return os.Rename(p, p+".old") },
	} {
		t.Run(name, func(t *testing.T) {
			dir, b := t.TempDir(), newBooks()
			cfg, _ := Config{}.withDefaults()
			now := time.Now()
			cfg.Now = func() time.Time { return now }
			s, err := openAt(dir, cfg, "boot1")
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			s.write(t, 4)
			id := s.ID()
			if err := takeAway(filepath.Join(dir, fileName)); err != nil {
				t.Fatal(err)
			}
			now = now.Add(2 * time.Second)
			d := &Decision{ID: NewID(), Org: "org_a", Sandbox: "sbx_a", Layer: "dns", Verdict: "allow"}
			for range 2 {
				if err := s.Record(t.Context(), d); !errors.Is(err, ErrMoved) {
					t.Fatalf("recording into a file that is not there: %v", err)
				}
			}
			b.take(t, s) // the rows
			b.take(t, s) // nothing: all is told
			if len(b.got[id]) != 4 || b.missing(id) != 2 {
				t.Errorf("of the file that was taken away %d rows and %d losses arrived", len(b.got[id]), b.missing(id))
			}
			b.take(t, s)
			s.write(t, 3)
			b.take(t, s)
			if s.ID() == id || len(b.got[s.ID()]) != 3 || b.missing(s.ID()) != 0 {
				t.Errorf("the new file %s has %d rows and %d losses", s.ID(), len(b.got[s.ID()]), b.missing(s.ID()))
			}
		})
	}
}

func TestUncountedLossIsSaid(t *testing.T) {
	s := at(t, t.TempDir(), "boot1")
	defer s.crash()
	s.write(t, 1)
	s.spoil(t)
	if err := s.Record(t.Context(), &Decision{Org: "org_a"}); errors.Is(err, ErrUncounted) {
		t.Fatalf("a loss that was counted: %v", err)
	}
	s.file.book.Load().file.Close()
	if err := s.Record(t.Context(), &Decision{Org: "org_a"}); !errors.Is(err, ErrUncounted) {
		t.Errorf("a loss that the file did not take: %v", err)
	}
}

// FuzzLedger: whatever stands in the file, it is read as it was written, or not at all.
func FuzzLedger(f *testing.F) {
	write := func(head ledgerHead, slots map[string]*slot) []byte {
		all := make([]byte, headSize+slotSize*len(slots))
		copy(all, head.bytes())
		for name, s := range slots {
			copy(all[headSize+slotSize*s.place:], s.bytes(name))
		}
		return all
	}
	good := write(ledgerHead{"id", "boot", 7, true}, map[string]*slot{"org_a": {reserved: 8, counts: losses{1, 2, 3}}, "org_b": {place: 1}})
	f.Add(good)
	f.Add(good[:headSize])
	f.Add(good[:headSize+5])
	bad := bytes.Clone(good)
	bad[headSize+70]++
	f.Add(bad)
	f.Fuzz(func(t *testing.T, data []byte) {
		head, slots, err := readLedger(bytes.NewReader(data))
		if err != nil {
			return
		}
		again, same, err := readLedger(bytes.NewReader(write(head, slots)))
		if err != nil || again != head || len(same) != len(slots) {
			t.Fatalf("%+v with %d slots was read, and again %+v with %d: %v", head, len(slots), again, len(same), err)
		}
	})
}

// A commit that panics, on a goroutine whose owner recovers it as net/http does, leaves nobody waiting and nothing uncounted.
func TestBrokenCommitIsTold(t *testing.T) {
	var broken bool
	cfg, err := Config{Now: func() time.Time {
		if broken {
			panic("broken")
		}
		return time.Now()
	}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	s, err := openAt(t.TempDir(), cfg, "boot")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.write(t, 1)
	follower := &entry{org: "org_a", done: make(chan error, 1)}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the commit did not panic")
			}
		}()
		if lead, err := s.queue.push(t.Context(), follower); !lead || err != nil {
			t.Fatal(lead, err)
		}
		broken = true
		s.lead()
	}()
	broken = false
	select {
	case err := <-follower.done:
		if !errors.Is(err, errCommit) {
			t.Errorf("who waited was told %v", err)
		}
	default:
		t.Error("who waited was told nothing")
	}
	if n := s.Lost(); n != 1 {
		t.Errorf("%d lines are counted as lost, want 1", n)
	}
	s.write(t, 1)
}
