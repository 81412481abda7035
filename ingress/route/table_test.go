package route

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

type clocks struct {
	now  time.Time
	boot time.Duration
}

func newTable(c *clocks, change func(old, now *Record)) *Table {
	c.now, c.boot = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), time.Hour
	return NewTable(TableConfig{Now: func() time.Time { return c.now }, Boot: func() time.Duration { return c.boot }, OnChange: change})
}

func record(c *clocks, host string, change ...func(*Record)) Record {
	r := Record{
		Host: host, Tunnel: "tun_" + host, Sandbox: "sbx_1", Org: "org_1", Port: 3000, Generation: 1, State: Running,
		Public: true, ExpiresAt: c.now.Add(time.Hour),
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func lookup(t *testing.T, table *Table, host string, want error) *Record {
	t.Helper()
	r, err := table.Lookup(host)
	if !errors.Is(err, want) {
		t.Fatalf("Lookup(%q) says %v, want %v", host, err, want)
	}
	return r
}

func apply(t *testing.T, table *Table, records ...Record) {
	t.Helper()
	if err := table.Apply(records...); err != nil {
		t.Fatal(err)
	}
}

func TestExpiredTunnelIsGone(t *testing.T) {
	var c clocks
	table := newTable(&c, nil)
	apply(t, table, record(&c, "a.test"))
	c.now = c.now.Add(time.Hour - time.Nanosecond)
	if r := lookup(t, table, "a.test", nil); r.Port != 3000 {
		t.Fatalf("got %+v", r)
	}
	c.now = c.now.Add(time.Nanosecond)
	lookup(t, table, "a.test", ErrGone)
	if !table.Known("a.test") {
		t.Error("an expired tunnel's host is not known any more, so nobody is told that it expired")
	}
	c.now = c.now.Add(24 * time.Hour)
	apply(t, table, record(&c, "b.test"))
	c.now = c.now.Add(time.Minute)
	apply(t, table, record(&c, "c.test"))
	lookup(t, table, "a.test", ErrUnknown)
	lookup(t, table, "b.test", nil)
}

func TestForgottenTunnelIsGone(t *testing.T) {
	var c clocks
	var told []string
	table := newTable(&c, func(old, now *Record) { told = append(told, fmt.Sprintf("%t %s %s", old == nil, now.Host, now.State)) })
	apply(t, table, record(&c, "a.test"), record(&c, "b.test"))
	told = nil
	if err := table.Replace([]Record{record(&c, "b.test")}); err != nil {
		t.Fatal(err)
	}
	lookup(t, table, "a.test", ErrGone)
	lookup(t, table, "b.test", nil)
	apply(t, table, record(&c, "b.test", func(r *Record) { r.State = Gone }))
	lookup(t, table, "b.test", ErrGone)
	apply(t, table, record(&c, "b.test", func(r *Record) { r.Tunnel = "tun_other" }))
	lookup(t, table, "b.test", ErrGone)
	if want := "[false a.test gone false b.test gone]"; fmt.Sprint(told) != want {
		t.Errorf("told %v, want %v", told, want)
	}
}

func TestUnknownHostWhileStale(t *testing.T) {
	var c clocks
	table := newTable(&c, nil)
	lookup(t, table, "a.test", ErrStale)
	apply(t, table, record(&c, "a.test"))
	lookup(t, table, "b.test", ErrUnknown)
	c.boot += 10 * time.Second
	lookup(t, table, "b.test", ErrUnknown)
	c.boot++
	lookup(t, table, "b.test", ErrStale)
	lookup(t, table, "a.test", nil)
	table.Heartbeat()
	lookup(t, table, "b.test", ErrUnknown)
}

func TestBrokenRecordIsRefusedWhole(t *testing.T) {
	var c clocks
	table := newTable(&c, func(_, now *Record) { t.Errorf("%q changed", now.Host) })
	for name, broken := range map[string]func(*Record){
		"host in another form":   func(r *Record) { r.Host = "B.test" },
		"an address for a host":  func(r *Record) { r.Host = "127.0.0.1" },
		"no tunnel":              func(r *Record) { r.Tunnel = "" },
		"no sandbox":             func(r *Record) { r.Sandbox = "" },
		"no org":                 func(r *Record) { r.Org = "" },
		"no port":                func(r *Record) { r.Port = 0 },
		"an unknown state":       func(r *Record) { r.State = 9 },
		"running in no time":     func(r *Record) { r.Generation = 0 },
		"no end":                 func(r *Record) { r.ExpiresAt = time.Time{} },
		"private without secret": func(r *Record) { r.Public = false },
		"the same host again":    func(r *Record) { r.Host = "a.test" },
	} {
		records := []Record{record(&c, "a.test"), record(&c, "b.test", broken)}
		if table.Apply(records...) == nil || table.Replace(records) == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := table.Lookup("a.test"); !errors.Is(err, ErrStale) {
			t.Errorf("%s: half of it was applied", name)
		}
	}
	table = newTable(&c, nil)
	apply(t, table, record(&c, "a.test"), record(&c, "b.test"))
	lookup(t, table, "a.test", nil)
}

// BenchmarkLookup watches the cost that each request pays first. It must not allocate.
func BenchmarkLookup(b *testing.B) {
	var c clocks
	table := newTable(&c, nil)
	var records []Record
	for i := range 10_000 {
		records = append(records, record(&c, fmt.Sprintf("h%d.tunnel.localhost", i)))
	}
	if err := table.Replace(records); err != nil {
		b.Fatal(err)
	}
	lookup := func() {
		host, _, err := Split("h7777.tunnel.localhost:8443")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := table.Lookup(host); err != nil {
			b.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, lookup); n != 0 {
		b.Fatalf("a lookup allocates %v times", n)
	}
	b.ReportAllocs()
	for b.Loop() {
		lookup()
	}
}
