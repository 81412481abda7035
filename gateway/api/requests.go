package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/sso"
)

// A requestView is a request for access as approvers see it.
type requestView struct {
	ID        string     `json:"id"`
	Sandbox   string     `json:"sandbox_id"`
	State     string     `json:"state" enum:"open,approved,denied,expired"`
	Host      string     `json:"host"`
	Port      uint16     `json:"port"`
	Protocol  string     `json:"protocol"`
	Methods   []string   `json:"methods,omitempty"`
	Paths     []string   `json:"paths,omitempty"`
	Width     string     `json:"width" enum:"host,url" doc:"host: everything on the host and port. url: only the methods and paths."`
	Why       string     `json:"why" doc:"The sandbox's word, and no more than that."`
	For       string     `json:"for" doc:"How long access is asked for."`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt time.Time  `json:"expires_at" doc:"Of an open one: when nobody can decide it any more. Of an approved one: the end of the access."`
	DecidedAt *time.Time `json:"decided_at,omitempty"`
	DecidedBy string     `json:"decided_by,omitempty"`
	Reason    string     `json:"reason,omitempty" doc:"The approver's words; the sandbox is told them."`
	Rule      string     `json:"rule,omitempty" doc:"The id of the rule that was added."`
	Layers    []string   `json:"layers,omitempty" doc:"Where it was added."`
}

func viewRequest(r store.AccessRequest) requestView {
	v := requestView{ID: r.ID, Sandbox: r.Sandbox, State: string(r.State), Host: r.Host, Port: r.Port, Protocol: r.Protocol, Methods: r.Methods, Paths: r.Paths,
		Width: r.Width, Why: r.Why, For: shortDuration(r.Lasts), CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, DecidedBy: r.DecidedBy, Reason: r.Reason, Rule: r.Rule, Layers: r.Layers}
	if !r.DecidedAt.IsZero() {
		v.DecidedAt = &r.DecidedAt
	}
	return v
}

type requestListIn struct {
	State   string `query:"state" enum:"open,approved,denied,expired" doc:"Default: all."`
	Sandbox string `query:"sandbox_id" maxLength:"64"`
	Limit   int    `query:"limit" minimum:"1" maximum:"500" default:"100"`
}

type requestListOut struct {
	Body struct {
		Requests []requestView `json:"requests" nullable:"false" doc:"Newest first."`
	}
}

type requestIDIn struct {
	ID string `path:"id"`
}

type requestOut struct {
	Body requestView
}

// A requestEvent is one message of the stream.
type requestEvent struct {
	Event   string      `json:"event" enum:"egress.request.created,egress.request.decided,egress.request.expired"`
	Request requestView `json:"request"`
}

func (s *Server) requestRoutes() {
	tags := []string{"requests"}
	route(s, sso.ScopeRead, huma.Operation{OperationID: "list-requests", Method: http.MethodGet, Path: "/requests", Summary: "List what sandboxes asked access for",
		Tags: tags}, s.listRequests)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "get-request", Method: http.MethodGet, Path: "/requests/{id}", Summary: "Read a request for access", Tags: tags}, s.getRequest)
	route(s, sso.ScopeApprove, huma.Operation{OperationID: "approve-request", Method: http.MethodPost, Path: "/requests/{id}/approve", Summary: "Give the access for a while",
		Description: "Adds a rule with an end to each layer of the sandbox's that lacks one, and says which recorded denials it would have allowed. The rule holds for every sandbox under these layers.",
		Tags:        tags}, s.approveRequest)
	route(s, sso.ScopeApprove, huma.Operation{OperationID: "deny-request", Method: http.MethodPost, Path: "/requests/{id}/deny", Summary: "Refuse the access", Tags: tags}, s.denyRequest)
	s.plain(sso.ScopeApprove, huma.Operation{OperationID: "follow-requests", Method: http.MethodGet, Path: "/requests/stream", Summary: "Follow requests",
		Description: "Server-sent events: first each open request, then what is asked and decided. While a stream is open the org has an approver, and sandboxes may wait for an answer.",
		Tags:        tags}, nil, nil, s.followRequests)
}

func (s *Server) listRequests(ctx context.Context, c *caller, in *requestListIn) (*requestListOut, error) {
	if in.Sandbox != "" {
		if _, err := s.sandbox(ctx, c, in.Sandbox); err != nil {
			return nil, err
		}
	}
	all, err := s.Store.AccessRequests(ctx, c.org(), store.AccessFilter{Sandbox: in.Sandbox, State: store.AccessState(in.State), Limit: in.Limit}, s.Now())
	if err != nil {
		return nil, err
	}
	out := &requestListOut{}
	out.Body.Requests = []requestView{}
	for _, r := range all {
		out.Body.Requests = append(out.Body.Requests, viewRequest(r))
	}
	return out, nil
}

func (s *Server) getRequest(ctx context.Context, c *caller, in *requestIDIn) (*requestOut, error) {
	r, err := s.accessRequest(ctx, c.org(), in.ID)
	return &requestOut{viewRequest(r)}, err
}

func (s *Server) accessRequest(ctx context.Context, org, id string) (store.AccessRequest, error) {
	r, err := s.Store.AccessRequest(ctx, org, id, s.Now())
	if errors.Is(err, store.ErrNotFound) {
		return r, notFound("request")
	}
	return r, err
}

// openMost is more than an org has open: see accessLimits.
const openMost = 500

// followRequests sends what is open, then what is asked and what came of it. Whoever reads it counts as an approver.
func (s *Server) followRequests(w http.ResponseWriter, r *http.Request, c *caller) error {
	for name := range r.URL.Query() {
		return invalid("query."+name, "unknown query parameter")
	}
	leave := s.approvers.join(c.org())
	if leave == nil {
		return problem(http.StatusConflict, "too_many_streams", "the org has as many streams of requests as it may")
	}
	defer leave()
	events := startEvents(w)
	beat := time.NewTicker(s.Heartbeat)
	defer beat.Stop()
	told := map[string]bool{}
	for {
		changed := s.Store.AccessChanged() // before reading: what comes after it wakes us
		if err := s.sendRequests(r, c, events, told); err != nil {
			return nil // the head is out; the client sees the stream end
		}
		select {
		case <-changed:
		case <-beat.C:
			if !s.stillGood(r, c) || events.send(": heartbeat\n\n") != nil {
				return nil
			}
		case <-r.Context().Done():
			return nil
		}
	}
}

// sendRequests sends each open request that was not told, and the end of each that was.
func (s *Server) sendRequests(r *http.Request, c *caller, events *eventWriter, told map[string]bool) error {
	open, err := s.Store.AccessRequests(r.Context(), c.org(), store.AccessFilter{State: store.AccessOpen, Limit: openMost}, s.Now())
	if err != nil {
		return err
	}
	now := make(map[string]bool, len(open))
	for i := range open {
		a := open[len(open)-1-i] // oldest first
		now[a.ID] = true
		if told[a.ID] {
			continue
		}
		told[a.ID] = true
		if err := events.data("", requestEvent{"egress.request.created", viewRequest(a)}); err != nil {
			return err
		}
	}
	for id := range told {
		if now[id] {
			continue
		}
		delete(told, id)
		a, err := s.Store.AccessRequest(r.Context(), c.org(), id, s.Now())
		if err != nil {
			continue // forgotten meanwhile
		}
		event := "egress.request.decided"
		if a.State == store.AccessExpired && a.DecidedAt.IsZero() {
			event = "egress.request.expired"
		}
		if err := events.data("", requestEvent{event, viewRequest(a)}); err != nil {
			return err
		}
	}
	return nil
}
