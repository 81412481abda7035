package store_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

// processor is the time that this process has had of the processors.
func processor(b *testing.B) time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkAppend watches how many decisions per second the store takes, in batches as edges ship them: half of the flows of a
// batch are open, the other half of those that it closes were opened in the batch before; of short flows each line is all. One
// operation is one batch.
func BenchmarkAppend(b *testing.B) {
	for name, open := range map[string]func(testing.TB) string{
		"sqlite": func(tb testing.TB) string { return filepath.Join(tb.TempDir(), "store.db") }, "postgres": schema,
	} {
		b.Run(name, func(b *testing.B) {
			st, err := store.Open(b.Context(), open(b), store.Options{Create: true})
			if err != nil {
				b.Fatal(err)
			}
			defer st.Close()
			by := sso.Principal{Kind: sso.KindSetup, ID: "setup", Org: store.NewID("org")}
			if _, err := st.Change(b.Context(), store.By{Principal: by}, func(tx *store.Tx) error {
				if _, err := tx.CreateOrg(b.Context(), "one", "one"); err != nil {
					return err
				}
				return tx.Record(b.Context(), audit.OrgRegister, by.Org, nil)
			}); err != nil {
				b.Fatal(err)
			}
			batch := func() (opened, closed []decisions.Decision) {
				for i := range 250 {
					d := decisions.Decision{ID: decisions.NewID(), Time: time.Now(), Org: by.Org, Sandbox: fmt.Sprintf("sbx_%d", i%20), Incarnation: 1,
						Flow: "flo_01a22fcc-5ca2-74e5-922a-e0784730c76e", Layer: "http", Level: "http", Verdict: "allow", Reason: "allowed", Rule: "r1", RuleLayer: "ceiling", Revision: 7, Version: 3,
						Host: "api.example.com", Addr: "203.0.113.10", Port: 443, Protocol: "https", Method: "GET", Path: "/v1/things/17"}
					opened = append(opened, d)
					d.Closed, d.Status, d.BytesIn, d.DurationMS = true, 200, 1234, 56
					closed = append(closed, d)
				}
				return opened, closed
			}
			for _, c := range []struct {
				name  string
				short bool
			}{{"long flows", false}, {"short flows", true}} {
				b.Run(c.name, func(b *testing.B) {
					_, before := batch()
					rows := 0
					cpu := processor(b)
					for b.Loop() {
						opened, closed := batch()
						all := closed
						if !c.short {
							all = append(opened, before...)
							before = closed
						}
						if err := st.AppendDecisions(b.Context(), all); err != nil {
							b.Fatal(err)
						}
						rows += len(all)
					}
					b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "lines/s")
					b.ReportMetric(float64((processor(b)-cpu).Nanoseconds())/float64(rows)/1000, "cpu-µs/line")
				})
			}
			h, err := st.Holdings(b.Context(), by.Org)
			if err != nil || h.Count == 0 {
				b.Fatal(h, err)
			}
		})
	}
}
