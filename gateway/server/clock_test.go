package server

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/clock"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/role"
)

const day = 24 * time.Hour

// setBack is the line of a run under a clock that was set back by so much since it began.
func setBack(by time.Duration) clock.Clock { return clock.New(time.Now().Add(by)) }

// setAhead is that under a clock that was set ahead.
func setAhead(by time.Duration) clock.Clock {
	c := clock.New(time.Time{})
	c.At = c.At.Add(-by)
	return c
}

func TestEndedTunnelStaysGone(t *testing.T) {
	for name, tt := range map[string]struct {
		back, ends time.Duration
		want       int // with the token
	}{
		"by a clock that is right":          {0, time.Hour, 200},
		"set back to before the end":        {day, time.Hour, 410},
		"set back, and the end still ahead": {day, day + time.Hour, 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPort(t, false, func(start *role.IngressStart) { start.Clock = setBack(tt.back) })
			p.wake = func(role.WakeRequest) (role.Woken, error) { return role.Woken{Generation: 3}, nil }
			if err := call(p.control, role.IngressKeys, p.keys, nil); err != nil {
				t.Fatal(err)
			}
			state := paused(1)
			state.Records[0].ExpiresAt = time.Now().Add(tt.ends)
			if err := call(p.control, feed.Routes, state, nil); err != nil {
				t.Fatal(err)
			}
			if status, _ := p.with(t, tunnelToken); status != tt.want {
				t.Errorf("with the token: %d, want %d", status, tt.want)
			}
			if status, _ := p.with(t, "wrong"); status == 200 {
				t.Error("without it: 200")
			}
			if dials, _ := p.took(); dials > 0 != (tt.want == 200) {
				t.Errorf("%d dials", dials)
			}
		})
	}
}

// asks calls the API of a control and returns the status, and what it answered.
func (c *control) asks(t *testing.T, key, method, path, body string, out any) int {
	t.Helper()
	r := httptest.NewRequest(method, "/api/v1"+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	c.http.Handler.ServeHTTP(w, r)
	answer, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	if out != nil {
		if err := json.Unmarshal(answer, out); err != nil {
			t.Fatalf("%d: %s: %v", w.Code, answer, err)
		}
	}
	return w.Code
}

// TestEndedKeyStaysEnded: two days went by, and then the clock was set back by two days.
func TestEndedKeyStaysEnded(t *testing.T) {
	c, _ := newControl(t)
	c.store.Close()
	c.setup = role.ControlStart{Dir: t.TempDir(), TunnelDomain: "tunnel.localhost", UpstreamDNS: []string{"203.0.113.53"}}
	ready, err := c.build(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.store.Close() })
	var made struct {
		Key string `json:"key"`
	}
	if status := c.asks(t, ready.Key, http.MethodPost, "/api-keys", `{"name":"ci","scopes":["read"],"expires_in_days":1}`, &made); status >= 300 || made.Key == "" {
		t.Fatalf("making a key: %d %+v", status, made)
	}
	for _, tt := range []struct {
		went time.Duration
		want int
	}{{0, 200}, {12 * time.Hour, 200}, {2 * day, 401}} {
		c.setup.Clock = setBack(tt.went)
		if got := c.asks(t, made.Key, http.MethodGet, "/policies", "", nil); got != tt.want {
			t.Errorf("after %v, with the clock set back: %d, want %d", tt.went, got, tt.want)
		}
	}
}

func TestExemptionStaysEnded(t *testing.T) {
	c, w := newControl(t)
	one := w.Org("one")
	c.open(t, one, "10.1.0.0/16", func(e *store.FloorExemption) { e.ExpiresAt = time.Now().Add(time.Hour) })
	for back, want := range map[time.Duration]bool{0: true, day: false} {
		c.setup.Clock = setBack(back)
		floor, err := c.floorNow(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := floor.Judge(one.Principal.Org, netip.MustParseAddr("10.1.0.1"), 443).Allowed(); got != want {
			t.Errorf("with the clock set back by %v it is open: %v", back, got)
		}
	}
}

// TestClockAheadDeletesNothing: a clock that is a year ahead for a moment must not take the record of a year.
func TestClockAheadDeletesNothing(t *testing.T) {
	c, w := newControl(t)
	one := w.Org("one")
	box := w.Sandbox(one, "")
	lately := time.Now().AddDate(-1, 0, 0) // by the line of a run whose clock is a year ahead
	var batch []decisions.Decision
	for range 20 {
		batch = append(batch, decisions.Decision{ID: store.NewID("dec"), Time: lately, Org: box.Org, Sandbox: box.ID, Layer: "dns", Verdict: "deny", Host: "a.test"})
	}
	if err := c.store.AppendDecisions(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		line clock.Clock
		left int64
	}{{setAhead(365 * day), 20}, {clock.Clock{}, 0}} {
		c.setup.Clock = tt.line
		if _, err := c.trimRound(t.Context(), orgDecisions, allDecisions); err != nil {
			t.Fatal(err)
		}
		h, err := c.store.Holdings(t.Context(), box.Org)
		if err != nil || h.Count != tt.left {
			t.Errorf("%d decisions are left, want %d; %v", h.Count, tt.left, err)
		}
	}
}
