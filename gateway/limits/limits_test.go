package limits_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"portreeve.dev/gateway/limits"
)

// each sets every field to one number.
func each(n int64) (l limits.Limits) {
	v := reflect.ValueOf(&l).Elem()
	for i := range v.NumField() {
		v.Field(i).SetInt(n)
	}
	return l
}

func TestOwnLimitsOnlyLower(t *testing.T) {
	for _, c := range []struct {
		name                string
		platform, own, want int64
		above               bool
	}{
		{"none at all", 0, 0, 0, false},
		{"the platform's alone", 10, 0, 10, false},
		{"the org's alone", 0, 10, 10, false},
		{"lower", 10, 9, 9, false},
		{"the same", 10, 10, 10, false},
		{"higher", 10, 11, 10, true},
	} {
		platform, own := each(c.platform), each(c.own)
		if got := platform.Lowered(own); got != each(c.want) {
			t.Errorf("%s: %+v", c.name, got)
		}
		if n := len(platform.Above(own)); n != 0 && !c.above || c.above && n != reflect.TypeFor[limits.Limits]().NumField() {
			t.Errorf("%s: %d fields are above", c.name, n)
		}
	}
	var names map[string]any
	text, _ := json.Marshal(each(2))
	if err := json.Unmarshal(text, &names); err != nil {
		t.Fatal(err)
	}
	for _, name := range each(1).Above(each(2)) {
		if _, ok := names[name]; !ok {
			t.Errorf("%s is no field", name)
		}
	}
}

func TestStateOfAQuota(t *testing.T) {
	var got []limits.State
	for _, used := range []int64{0, 799, 800, 999, 1000, 1001} {
		got = append(got, limits.StateOf(1000, used))
	}
	if want := []limits.State{"ok", "ok", "warning", "warning", "exhausted", "exhausted"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if limits.StateOf(0, 1<<60) != limits.OK {
		t.Error("without a quota")
	}
}

func TestLimitsAreReadAsPeopleWriteThem(t *testing.T) {
	var l limits.Limits
	for _, name := range limits.Names() {
		if err := l.Set(name, "7"); err != nil || l.Get(name) != 7 {
			t.Errorf("%s: %d, %v", name, l.Get(name), err)
		}
	}
	if l != each(7) {
		t.Errorf("%+v: a field has no name", l)
	}
	for _, c := range []struct {
		name, text string
		want       int64
		wrong      string
	}{
		{"monthly_quota_bytes", "2Ti", 2 << 40, ""},
		{"monthly_quota_bytes", "5000000000", 5000000000, ""},
		{"monthly_quota_bytes", "0", 0, ""},
		{"connections_per_org", "0", 0, ""},
		{"connections_per_org", "2Ki", 0, "connections_per_org"},
		{"connections_per_org", "-1", 0, "connections_per_org"},
		{"connections_per_org", "", 0, "connections_per_org"},
		{"org_bytes_in_per_second", "-1", 0, "org_bytes_in_per_second"},
		{"org_bytes_in_per_second", "", 0, "org_bytes_in_per_second"},
		{"made_up", "1", 0, "monthly_quota_bytes"},
	} {
		err := l.Set(c.name, c.text)
		if c.wrong == "" && (err != nil || l.Get(c.name) != c.want) || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s=%s: %d, %v", c.name, c.text, l.Get(c.name), err)
		}
	}
}
