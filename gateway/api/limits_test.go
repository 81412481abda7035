package api_test

import (
	"testing"
	"time"

	"portreeve.dev/egress/flows"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
	"portreeve.dev/gateway/limits"
)

func limited(t *testing.T) (*apitest.World, *apitest.Client) {
	w := apitest.New(t, func(c *api.Config) {
		c.Egress = limits.Limits{ConnectionsPerOrg: 100, MonthlyQuota: 1000}
		c.Now = func() time.Time { return time.Date(2026, 12, 15, 12, 0, 0, 0, time.UTC) }
	})
	return w, w.Org("one")
}

func TestLimitsAreLoweredOnly(t *testing.T) {
	w, c := limited(t)
	a := c.Do("GET", "/settings/limits", nil).Want(200)
	if a.At("limits.connections_per_org") != 100.0 || a.At("version") != 0.0 || a.At("own.connections_per_org") != nil {
		t.Errorf("%s", a.Body)
	}
	for name, n := range map[string]int{"connections_per_org": 101, "monthly_quota_bytes": 1001} {
		c.Do("PUT", "/settings/limits", object{name: n}).Refused(422, "invalid_request", "body."+name)
	}
	c.Do("PUT", "/settings/limits", object{"connections_per_org": -1}).Refused(422, "invalid_request", "body.connections_per_org")
	c.Do("PUT", "/settings/limits", object{"made_up": 1}).Refused(422, "invalid_request", "body.made_up")
	before := len(w.Feed.Published())
	a = c.Do("PUT", "/settings/limits?wait=applied", object{"connections_per_org": 100, "org_bytes_in_per_second": 4096, "monthly_quota_bytes": 500}).Want(200)
	if a.At("limits.connections_per_org") != 100.0 || a.At("limits.org_bytes_in_per_second") != 4096.0 || a.At("limits.monthly_quota_bytes") != 500.0 || a.At("platform.monthly_quota_bytes") != 1000.0 {
		t.Errorf("%s", a.Body)
	}
	if len(w.Feed.Published()) != before+1 || w.Feed.Applied() == 0 {
		t.Error("the edges were not told")
	}
	c.Also("If-Match", `"0"`).Do("PUT", "/settings/limits", object{}).Refused(412, "version_changed")
	c.Also("If-Match", a.Header.Get("ETag")).Do("PUT", "/settings/limits", object{}).Want(200)
	if a = c.Do("GET", "/settings/limits", nil).Want(200); a.At("limits.monthly_quota_bytes") != 1000.0 || a.At("version") != 2.0 {
		t.Errorf("%s", a.Body)
	}
	c.With([]string{"read", "write"}).Do("PUT", "/settings/limits", object{}).Refused(403, "scope_missing")
}

func TestUsageOfTheMonth(t *testing.T) {
	w, c := limited(t)
	other := w.Org("two")
	a := c.Do("GET", "/usage/egress", nil).Want(200)
	if a.String("state") != "ok" || a.String("month") != "2026-12" || a.At("used_bytes") != 0.0 || a.At("left_bytes") != 1000.0 || a.String("resets_at") != "2027-01-01T00:00:00Z" {
		t.Errorf("%s", a.Body)
	}
	count := func(source string, u flows.Usage) {
		t.Helper()
		if err := w.Store.CountUsage(t.Context(), source, []flows.Usage{u}); err != nil {
			t.Fatal(err)
		}
	}
	count("edge_a", flows.Usage{Org: c.Org, Month: "2026-12", In: 500, Out: 200})
	count("edge_b", flows.Usage{Org: c.Org, Month: "2026-12", In: 100})
	count("edge_a", flows.Usage{Org: c.Org, Month: "2026-11", In: 5000})
	a = c.Do("GET", "/usage/egress", nil).Want(200)
	if a.String("state") != "warning" || a.At("bytes_in") != 600.0 || a.At("used_bytes") != 800.0 || a.At("left_bytes") != 200.0 || a.String("months.1.month") != "2026-11" {
		t.Errorf("%s", a.Body)
	}
	count("edge_b", flows.Usage{Org: c.Org, Month: "2026-12", In: 301})
	if a = c.Do("GET", "/usage/egress", nil).Want(200); a.String("state") != "exhausted" || a.At("left_bytes") != 0.0 {
		t.Errorf("%s", a.Body)
	}
	if a = other.Do("GET", "/usage/egress", nil).Want(200); a.At("used_bytes") != 0.0 {
		t.Errorf("the other org: %s", a.Body)
	}
}
