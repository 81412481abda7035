package decisions_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
)

// sameText compares with encoding/json.
func sameText(t *testing.T, d decisions.Decision) {
	t.Helper()
	want, err := json.Marshal(&d)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(d.AppendJSON(nil)); got != string(want) {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// Each field by itself, filled, so that one that is added to Decision is missed here.
func TestEncodesEveryField(t *testing.T) {
	sameText(t, decisions.Decision{})
	var all decisions.Decision
	fill := func(v reflect.Value) {
		switch v.Interface().(type) {
		case time.Time:
			v.Set(reflect.ValueOf(time.Date(2026, 12, 1, 9, 8, 7, 65, time.UTC)))
			return
		case []string:
			v.Set(reflect.ValueOf([]string{"header:cookie", "a\"b<c>&\\ü\x00\u2028\xff"}))
			return
		case []decisions.Use:
			v.Set(reflect.ValueOf([]decisions.Use{{Secret: "sec_1", Version: 2, Place: "header:x"}, {Place: "query:\"k\""}}))
			return
		}
		switch v.Kind() {
		case reflect.String:
			v.SetString("/a?<b>\"\\\n\x7fü\u2029\xff,\"closed\":true")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int64:
			v.SetInt(-1 << 31)
		case reflect.Uint16, reflect.Uint64:
			v.SetUint(1<<16 - 1)
		default:
			t.Fatalf("no value for a field of %s", v.Type())
		}
	}
	for i := range reflect.TypeFor[decisions.Decision]().NumField() {
		var one decisions.Decision
		fill(reflect.ValueOf(&one).Elem().Field(i))
		sameText(t, one)
		fill(reflect.ValueOf(&all).Elem().Field(i))
	}
	sameText(t, all)
}

func FuzzAppendJSON(f *testing.F) {
	f.Add("dec_1", "good.test", "/a", int64(0), uint64(1), true)
	f.Add("\"", "\xff", "<&>\u2028", int64(-1), uint64(1<<63), false)
	f.Fuzz(func(t *testing.T, a, b, c string, n int64, u uint64, closed bool) {
		at := time.Unix(n%(1<<33), n%1e9).UTC()
		if at.Year() < 0 || at.Year() > 9999 {
			at = time.Time{}
		}
		sameText(t, decisions.Decision{ID: a, Time: at, Org: b, Host: c, Path: a + c, Foreign: []string{b, c}, Secrets: []decisions.Use{{Secret: a, Version: n, Place: c}},
			Port: uint16(u), Count: u, BytesIn: n, Status: int(n), Closed: closed, Until: at, Error: b})
	})
}

// Only a row whose end is in the same shipment loses its text, and only to its own org's.
func TestJoin(t *testing.T) {
	row := func(seq uint64, org, id string, closed bool, path string) decisions.Row {
		d := decisions.Decision{ID: id, Org: org, Path: path, Closed: closed}
		return decisions.Row{Seq: seq, Org: org, Num: seq, Body: d.AppendJSON(nil)}
	}
	s := decisions.Shipment{Rows: []decisions.Row{
		row(1, "org_a", "dec_1", false, "/"),
		row(2, "org_a", "dec_2", false, `/,"closed":true`), // says so only in its path
		row(3, "org_b", "dec_3", false, "/"),
		row(4, "org_a", "dec_1", true, "/"),
		row(5, "org_a", "dec_3", true, "/"), // of another org
		row(6, "org_a", "dec_4", true, "/"), // began in an earlier shipment
		{Seq: 7, Org: "org_a", Body: []byte(`{"time":""}`)},
	}}
	s.Join()
	for _, r := range s.Rows {
		if want := map[uint64]uint64{1: 4}[r.Seq]; r.With != want || (r.Body == nil) != (want != 0) {
			t.Errorf("row %d: with %d, text %s", r.Seq, r.With, r.Body)
		}
	}
	if !s.Oldest().Equal(time.Time{}) {
		t.Errorf("the oldest is of %v", s.Oldest())
	}
}
