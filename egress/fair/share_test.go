package fair_test

import (
	"fmt"
	"sync"
	"testing"

	"portreeve.dev/egress/fair"
)

// fill takes one by one until there is no more.
func fill(s *fair.Share, who string) (n int) {
	for s.Take(who, 1) {
		n++
	}
	return n
}

func TestOneLeavesAsMuchAsItTakes(t *testing.T) {
	for _, total := range []int{2, 3, 100, 1001} {
		s := fair.New(total)
		n := fill(s, "a")
		if n != total/2 || s.Held("a") != n || s.Used() != n {
			t.Errorf("of %d one got %d", total, n)
		}
		s.Give("a", 1)
		if n := fill(s, "a"); n != 1 {
			t.Errorf("one was given back, %d were there", n)
		}
	}
	if fair.New(10).Take("a", 6) {
		t.Error("more than half at once")
	}
	if !fair.New(10).Take("a", 5) {
		t.Error("half at once is too much")
	}
}

func TestLateComerGetsAShare(t *testing.T) {
	s := fair.New(1000)
	for i := range 5 {
		fill(s, fmt.Sprint("flood", i))
	}
	if n := fill(s, "late"); n < 10 {
		t.Errorf("the sixth got %d", n)
	}
	// Once the first gives back, the others grow: what is free goes to whoever holds least.
	s.Give("flood0", s.Held("flood0"))
	if n := fill(s, "late"); n < 100 {
		t.Errorf("the sixth got %d more of what was given back", n)
	}
}

func TestConcurrentUse(t *testing.T) {
	s := fair.New(100)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			who := fmt.Sprint(i % 3)
			for range 1000 {
				if s.Take(who, 2) {
					s.Give(who, 2)
				}
			}
		})
	}
	wg.Wait()
	if s.Used() != 0 || s.Held("0") != 0 {
		t.Errorf("%d are left", s.Used())
	}
}

// BenchmarkTake watches what each connection pays for its share.
func BenchmarkTake(b *testing.B) {
	s := fair.New(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if !s.Take("org", 1) {
			b.Fatal("no share")
		}
		s.Give("org", 1)
	}
}
