package api

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies"
)

const (
	pageOfDecisions = 1000    // read at a time, so that memory stays flat
	lookedAtMost    = 100_000 // decisions, by one question
)

// A Period is which recorded decisions a question is about.
type Period struct {
	Since   string `json:"since,omitempty" default:"24h" maxLength:"40" doc:"RFC 3339, or a duration before now like 24h."`
	Sandbox string `json:"sandbox,omitempty" maxLength:"64" doc:"Only this sandbox's decisions."`
	Most    int    `json:"most,omitempty" default:"100000" minimum:"1" maximum:"100000" doc:"At most so many decisions, the newest first."`
}

// A Look says which decisions were looked at.
type Look struct {
	Looked  int        `json:"looked_at" doc:"Decisions."`
	More    bool       `json:"more" doc:"There are more in the time that was asked for, older ones, which were not looked at."`
	Since   time.Time  `json:"since"`
	Through *time.Time `json:"oldest,omitempty" doc:"The time of the oldest decision that was looked at."`
}

// compiledMost is how many rules one question may have compiled; some 10,000 take 20 ms.
const compiledMost = 1_000_000

// errEnough ends a look before its end: what was looked at until then is told.
var errEnough = errors.New("enough was looked at")

// A turn lets one question of an org at a time go through its decisions: each of them takes a processor for a second or more.
type turn struct {
	mu    sync.Mutex
	taken map[string]bool
}

// take returns the way to give the turn back, or the refusal.
func (t *turn) take(org string) (func(), error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.taken[org] {
		return nil, problem(http.StatusTooManyRequests, "busy", "another question about the org's decisions is being answered").with("Retry-After", "1")
	}
	if t.taken == nil {
		t.taken = map[string]bool{}
	}
	t.taken[org] = true
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.taken, org)
	}, nil
}

// overDecisions hands each decision of a period to f, newest first, page by page.
func (s *Server) overDecisions(ctx context.Context, c *caller, p Period, f func(store.Decision) error) (Look, error) {
	now := s.Now().UTC()
	l := Look{Since: now.Add(-24 * time.Hour)}
	if p.Since != "" {
		since, ok := parseSince(p.Since, now)
		if !ok {
			return l, invalid("body.since", "must be an RFC 3339 time or a duration like 24h")
		}
		l.Since = since.UTC()
	}
	if p.Sandbox != "" {
		if _, err := s.sandbox(ctx, c, p.Sandbox); err != nil {
			return l, err
		}
	}
	done, err := s.looking.take(c.org())
	if err != nil {
		return l, err
	}
	defer done()
	most := lookedAtMost
	if p.Most > 0 {
		most = min(most, p.Most)
	}
	s.Settle(ctx)
	filter := store.DecisionFilter{Sandbox: p.Sandbox, Since: l.Since}
	for {
		filter.Limit = min(pageOfDecisions, most-l.Looked) + 1
		page, err := s.Store.Decisions(ctx, c.org(), filter)
		if err != nil {
			return l, err
		}
		more := len(page) == filter.Limit
		if more {
			page = page[:len(page)-1]
		}
		for _, d := range page {
			if err := f(d); errors.Is(err, errEnough) {
				l.More = true
				return l, nil
			} else if err != nil {
				return l, err
			}
			l.Looked++
			at := d.Time
			l.Through = &at
		}
		if len(page) > 0 {
			filter.After = page[len(page)-1].Place()
		}
		if !more || l.Looked >= most {
			l.More = more
			return l, nil
		}
	}
}

// cutPath ends a path of which only the beginning was recorded. No canonical path does.
const cutPath = "/…"

// observation turns a stored decision back into what was judged, to be asked as of now.
func observation(d store.Decision, now time.Time) policies.Observation {
	o := policies.Observation{Time: d.Time, Sandbox: d.Sandbox, Decision: d.ID, Allowed: d.Verdict == policies.Allow.String(), Reason: policies.Reason(d.Reason), Times: int(d.Count)}
	r := policies.Request{Host: d.Host, Port: d.Port, Now: now}
	switch d.Layer {
	case "dns":
		r.Stage = policies.StageName
	case "http":
		r.Stage, r.Method, r.Path = policies.StageRequest, d.Method, d.Path
		o.Partial = strings.HasSuffix(d.Path, cutPath)
	default:
		r.Stage = policies.StageConnect
	}
	if d.Protocol != "" && r.Stage != policies.StageName {
		r.Protocol, _ = policies.ParseProtocol(d.Protocol)
	}
	if r.Host == "" {
		if a, err := netip.ParseAddr(d.Addr); err == nil {
			r.Addr = a.Unmap()
		} else {
			o.Reason = policies.ReasonParse // nobody can say what it was about
		}
	}
	o.Request = r
	return o
}
