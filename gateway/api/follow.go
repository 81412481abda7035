package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"portreeve.dev/gateway/internal/store"
)

// A follower is one stream of decisions. It holds a page at most: whoever reads slowly is read for slowly, and what was deleted
// before he came to it is told with an event "lost".
type follower struct {
	s      *Server
	r      *http.Request
	c      *caller
	events *eventWriter
	wanted store.DecisionFilter
	last   int64  // the place up to which everything was sent
	told   uint64 // how many losses he knows of
	gone   int64  // the place up to which he knows that some are deleted
}

// lostEvent is the data of an event "lost".
type lostEvent struct {
	Reason string     `json:"reason" enum:"not_recorded,forgotten,reset"`
	Count  uint64     `json:"count,omitempty"`  // not_recorded: how many more decisions were lost
	Before *time.Time `json:"before,omitempty"` // forgotten: some from before this were deleted unread
}

// followDecisions sends each decision as it arrives, and each end of a flow. The store numbers them in commit order, so none is
// missed; Last-Event-ID goes on behind any of them, at whatever process.
func (s *Server) followDecisions(w http.ResponseWriter, r *http.Request, c *caller) error {
	f := &follower{s: s, r: r, c: c}
	reset, err := f.begin()
	if err != nil {
		return err
	}
	f.events = startEvents(w)
	if reset && f.events.named("lost", lostEvent{Reason: "reset"}) != nil {
		return nil
	}
	beat := time.NewTicker(s.Heartbeat)
	defer beat.Stop()
	for {
		more := s.Store.Appended() // before reading: what comes after it wakes us
		if f.sendNew() != nil {
			return nil // the head is out; the client sees the stream end
		}
		select {
		case <-more:
		case <-beat.C:
			// With the place, so that one who filters much doesn't begin far back.
			if !s.stillGood(r, c) || f.events.send(": heartbeat\nid: "+strconv.FormatInt(f.last, 10)+"\n\n") != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		}
	}
}

// begin reads the question. reset says that the place to go on from is none that this store has given.
func (f *follower) begin() (reset bool, err error) {
	q := f.r.URL.Query()
	for name := range q {
		if name != "sandbox_id" && name != "verdict" && name != "host" {
			return false, invalid("query."+name, "unknown query parameter")
		}
	}
	f.wanted = store.DecisionFilter{Sandbox: q.Get("sandbox_id"), Verdict: q.Get("verdict"), Host: strings.ToLower(strings.TrimSuffix(q.Get("host"), "."))}
	if f.wanted.Sandbox != "" {
		if _, err := f.s.sandbox(f.r.Context(), f.c, f.wanted.Sandbox); err != nil {
			return false, err
		}
	}
	now, h, err := f.s.lossOf(f.r.Context(), f.c.org())
	if err != nil {
		return false, err
	}
	f.last, f.told, f.gone = h.LastSeq, now.Lost, h.ForgottenSeq
	id := f.r.Header.Get("Last-Event-ID")
	if id == "" {
		return false, nil
	}
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n < 0 {
		return false, invalid("header.Last-Event-ID", "is not an id of this stream")
	}
	if n > h.LastSeq {
		return true, nil
	}
	f.last, f.gone = n, n
	return false, nil
}

// sendNew sends what has come, after a word about what never will.
func (f *follower) sendNew() error {
	if err := f.sendLost(); err != nil {
		return err
	}
	for {
		page, err := f.s.Store.DecisionsAfter(f.r.Context(), f.c.org(), f.last, streamPage)
		if err != nil {
			return err
		}
		for _, d := range page {
			if f.wants(d) {
				if err := f.events.data(strconv.FormatInt(d.Seq, 10), d.Decision); err != nil {
					return err
				}
			}
			f.last = d.Seq
		}
		if len(page) < streamPage {
			return nil
		}
		if err := f.sendLost(); err != nil { // while he read, others may have been deleted
			return err
		}
	}
}

func (f *follower) wants(d store.Decision) bool {
	return (f.wanted.Sandbox == "" || d.Sandbox == f.wanted.Sandbox) && (f.wanted.Verdict == "" || d.Verdict == f.wanted.Verdict) &&
		(f.wanted.Host == "" || d.Host == f.wanted.Host)
}

func (f *follower) sendLost() error {
	now, h, err := f.s.lossOf(f.r.Context(), f.c.org())
	if err != nil {
		return err
	}
	if h.ForgottenSeq > max(f.last, f.gone) {
		if err := f.events.named("lost", lostEvent{Reason: "forgotten", Before: now.ForgottenBefore}); err != nil {
			return err
		}
	}
	f.gone = max(f.gone, h.ForgottenSeq)
	if now.Lost > f.told {
		if err := f.events.named("lost", lostEvent{Reason: "not_recorded", Count: now.Lost - f.told}); err != nil {
			return err
		}
	}
	f.told = now.Lost
	return nil
}
