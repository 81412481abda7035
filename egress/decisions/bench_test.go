package decisions_test

import (
	"context"
	"testing"

	"portreeve.dev/egress/decisions"
)

// BenchmarkRecord watches what a decision adds to a connection: alone it pays for a whole commit, among 64 for a share of one.
func BenchmarkRecord(b *testing.B) {
	for _, callers := range []int{1, 64} {
		b.Run(map[int]string{1: "1 caller", 64: "64 callers"}[callers], func(b *testing.B) {
			s := open(b, b.TempDir(), decisions.Config{MaxBytes: 1 << 40, OrgShare: 1, Rate: 1e9, Burst: 1e9})
			work := make(chan struct{}, callers)
			ended := make(chan error, callers)
			d := decision("org_a", "sbx_a")
			b.ReportAllocs()
			b.ResetTimer()
			for range callers {
				go func() {
					for range work {
						if err := s.Record(context.Background(), d); err != nil {
							ended <- err
							return
						}
					}
					ended <- nil
				}()
			}
			for range b.N {
				work <- struct{}{}
			}
			close(work)
			for range callers {
				if err := <-ended; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
