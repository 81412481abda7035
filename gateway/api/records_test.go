package api_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/internal/store"
)

func TestDecisionSettings(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	a := c.Do("GET", "/settings/decisions", nil).Want(200)
	if a.At("mode") != "strict" || a.At("paths") != "full" || a.At("keep_days") != 30.0 {
		t.Errorf("of a fresh org: %s", a.Body)
	}
	before := len(w.Feed.Published())
	a = c.Also("If-Match", `"v0"`).Do("PUT", "/settings/decisions?wait=applied", object{"mode": "best_effort", "paths": "prefix", "keep_days": 7}).Want(200)
	if a.At("mode") != "best_effort" || a.At("version") != 1.0 || len(w.Feed.Published()) != before+1 {
		t.Errorf("%s", a.Body)
	}
	c.Also("If-Match", `"v0"`).Do("PUT", "/settings/decisions", object{"mode": "strict", "paths": "full", "keep_days": 30}).Refused(412, "version_changed")
	c.Do("PUT", "/settings/decisions", object{"mode": "strict", "paths": "full", "keep_days": 30, "version": 9}).Refused(412, "version_changed")
	for body, location := range map[string]string{
		`{"mode":"none","paths":"full","keep_days":30}`:             "body.mode",
		`{"mode":"strict","paths":"all","keep_days":30}`:            "body.paths",
		`{"mode":"strict","paths":"full","keep_days":0}`:            "body.keep_days",
		`{"mode":"strict","paths":"full","keep_days":400}`:          "body.keep_days",
		`{"mode":"strict","paths":"full"}`:                          "body",
		`{"mode":"strict","paths":"full","keep_days":1,"more":"x"}`: "body.more",
	} {
		c.Do("PUT", "/settings/decisions", body).Refused(422, "invalid_request", location)
	}
	c.With([]string{"read"}).Do("PUT", "/settings/decisions", object{"mode": "strict", "paths": "full", "keep_days": 30}).Refused(403, "scope_missing")
	if a := c.Do("GET", "/audit?action=settings.update", nil).Want(200); a.At("total") != 1.0 || a.At("events.0.details.mode") != "best_effort" || a.At("events.0.details.paths") != "prefix" {
		t.Errorf("%s", a.Body)
	}
	if a := w.Org("two").Do("GET", "/settings/decisions", nil).Want(200); a.At("mode") != "strict" {
		t.Errorf("another org's: %s", a.Body)
	}
}

// ship appends what a spool would send: rows of the org, and numbers up to upto of which some may be missing.
func ship(t *testing.T, w *apitest.World, org, spool string, upto uint64, nums ...uint64) {
	t.Helper()
	got := store.Receipt{Node: "n1", Spool: spool, Life: 1, Run: "r", Nums: map[string][]uint64{org: nums},
		Orgs: map[string]decisions.OrgState{org: {Upto: upto, Reserved: upto, Written: uint64(len(nums)), Budget: 1}}}
	if err := w.Store.AppendShipment(t.Context(), got); err != nil {
		t.Fatal(err)
	}
}

func TestDecisionHealthIsOfOneOrg(t *testing.T) {
	now := time.Now()
	w := apitest.New(t, func(c *api.Config) { c.Now = func() time.Time { return now } })
	one, two := w.Org("one"), w.Org("two")
	if a := one.Do("GET", "/decisions/health", nil).Want(200); a.At("lost") != 0.0 || a.At("nodes.0") != nil || a.At("forgotten_before") != nil {
		t.Errorf("before anything: %s", a.Body)
	}
	ship(t, w, one.Org, "s1", 5, 1, 2, 5)
	a := one.Do("GET", "/decisions/health", nil).Want(200)
	if a.At("lost") != 2.0 || a.At("nodes.0.state") != "ok" || a.At("nodes.0.shipped") != 3.0 || a.At("nodes.0.over_budget") != 1.0 || a.At("nodes.0.missing.0.first") != 3.0 || a.At("nodes.0.missing.0.last") != 4.0 {
		t.Errorf("with a loss: %s", a.Body)
	}
	if a := two.Do("GET", "/decisions/health", nil).Want(200); a.At("lost") != 0.0 || a.At("nodes.0") != nil {
		t.Errorf("another org's: %s", a.Body)
	}
	if a := one.Do("GET", "/decisions", nil).Want(200); a.At("lost") != 2.0 {
		t.Errorf("beside the list: %s", a.Body)
	}
	if a := two.Do("GET", "/decisions", nil).Want(200); a.At("lost") != 0.0 {
		t.Errorf("beside another's list: %s", a.Body)
	}
	now = now.Add(time.Minute)
	if a := one.Do("GET", "/decisions/health", nil).Want(200); a.At("nodes.0.state") != "silent" {
		t.Errorf("of an edge that says nothing: %s", a.Body)
	}
}

// TestTailGoesOnBehindAnyEvent cuts the stream after every event, and wants the whole story once.
func TestTailGoesOnBehindAnyEvent(t *testing.T) {
	w := apitest.New(t, func(c *api.Config) { c.Heartbeat = 20 * time.Millisecond })
	c := w.Org("one")
	box := c.Sandbox()
	flow := func(host string, closed bool, id string) string {
		return record(t, w, c.Org, box, host, func(d *decisions.Decision) {
			d.Verdict, d.Closed = "allow", closed
			if id != "" {
				d.ID = id
			}
		})
	}
	var want []string
	for i := range 6 {
		flow(fmt.Sprintf("h%d.test", i), false, "")
		want = append(want, fmt.Sprintf("h%d.test false", i))
		if i%2 == 1 {
			record(t, w, w.Org("other"+strconv.Itoa(i)).Org, "sbx_x", "foreign.test")
		}
	}
	last, got := "0", []string{}
	for range 40 {
		events(t, w, c.Also("Last-Event-ID", last), "GET", "/decisions/stream", "", func(id string, data map[string]any) bool {
			if data == nil {
				return false
			}
			last = id
			got = append(got, fmt.Sprint(data["host"], " ", data["closed"] == true))
			if len(got) == 2 {
				flow("h9.test", true, "dec_9") // both lines of it at once
				want = append(want, "h9.test true")
			}
			return false
		})
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("followed %v\nwant     %v", got, want)
	}
}

func TestTailTellsWhatIsNotInIt(t *testing.T) {
	now := time.Now()
	w := apitest.New(t, func(c *api.Config) { c.Heartbeat = 20 * time.Millisecond })
	c := w.Org("one")
	box := c.Sandbox()
	for i := range 5 {
		record(t, w, c.Org, box, fmt.Sprintf("old%d.test", i), func(d *decisions.Decision) { d.Time = now.Add(-40 * 24 * time.Hour) })
	}
	record(t, w, c.Org, box, "new.test")
	h, err := w.Store.Holdings(t.Context(), c.Org)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := w.Store.TrimDecisions(t.Context(), h, 1<<40); err != nil || n != 5 {
		t.Fatal(n, err)
	}
	told := func(from string, more func()) (reasons []string) {
		beats := 0
		events(t, w, c.Also("Last-Event-ID", from), "GET", "/decisions/stream", "", func(_ string, data map[string]any) bool {
			if data == nil {
				if beats++; beats == 1 {
					more()
				}
				return beats < 4
			}
			if r, ok := data["reason"].(string); ok && data["host"] == nil {
				reasons = append(reasons, r)
			}
			return true
		})
		return reasons
	}
	nothing := func() {}
	for from, want := range map[string]string{"2": "[forgotten]", "5": "[]", "6": "[]", "99": "[reset]"} {
		if got := fmt.Sprint(told(from, nothing)); got != want {
			t.Errorf("from %s: %s, want %s", from, got, want)
		}
	}
	if got := fmt.Sprint(told("6", func() { ship(t, w, c.Org, "s1", 3, 1, 3) })); got != "[not_recorded]" {
		t.Errorf("while something was lost: %s", got)
	}
}
