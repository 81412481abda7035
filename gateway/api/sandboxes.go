package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/quantity"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/sandboxes"
	"portreeve.dev/sso"
)

type sandboxCreateIn struct {
	Body struct {
		Kind      string            `json:"kind,omitempty" enum:"own,attached" default:"own" doc:"own: a node runs it. attached: somebody else does, and only what it sends comes here, by a door; of the other fields timeout_seconds, policy, egress and labels count."`
		Labels    map[string]string `json:"labels,omitempty" doc:"Words of your own, up to 32."`
		CPUs      string            `json:"cpus,omitempty" default:"2" doc:"Processors: 2, 0.5, 500m." maxLength:"20"`
		Memory    string            `json:"memory,omitempty" default:"2Gi" doc:"Memory: 512Mi, 2Gi." maxLength:"20"`
		Timeout   int64             `json:"timeout_seconds,omitempty" default:"600" minimum:"60" maximum:"86400"`
		Env       map[string]string `json:"env,omitempty"`
		Template  string            `json:"template,omitempty" enum:"tiny,base"`
		Isolation string            `json:"isolation,omitempty" enum:"container,gvisor" doc:"Both are gVisor."`
		Policy    string            `json:"policy,omitempty" maxLength:"63" doc:"A named policy; default: the org's."`
		Egress    json.RawMessage   `json:"egress,omitempty" doc:"A policy document of its own, which only narrows what its policy allows."`
		Workspace *struct {
			Persistence string `json:"persistence,omitempty" enum:"ephemeral"`
			Size        string `json:"size,omitempty" maxLength:"20"`
		} `json:"workspace,omitempty"`
		Org string `json:"org_id,omitempty" maxLength:"64" doc:"If given, the key's own org."`
	}
}

type sandboxIDIn struct {
	ID string `path:"id"`
}

type sandboxListIn struct {
	Org string `query:"org_id" maxLength:"64"`
	All bool   `query:"all" doc:"Those too that ended within the last day."`
}

type sandboxView struct {
	SandboxID     string            `json:"sandbox_id"`
	ID            string            `json:"id"`
	Org           string            `json:"org_id"`
	Session       string            `json:"session_id" doc:"The sandbox's own id, for clients that need the field."`
	Kind          string            `json:"kind" enum:"own,attached"`
	Labels        map[string]string `json:"labels,omitempty"`
	Status        string            `json:"status" enum:"creating,running,paused,terminating,terminated,error"`
	Reason        string            `json:"reason,omitempty" doc:"Why it is in error or has ended: out_of_memory, expired, deleted, exited, …"`
	Addr          string            `json:"addr,omitempty"`
	PodIP         string            `json:"pod_ip,omitempty" doc:"The same address."`
	RunscID       string            `json:"runsc_id,omitempty"`
	Incarnation   uint64            `json:"incarnation"`
	Generation    uint64            `json:"generation"`
	Policy        string            `json:"policy" doc:"Its named policy; empty: the ceiling alone."`
	PolicyVersion int64             `json:"policy_version" doc:"Of the named policy, or of the ceiling."`
	Egress        json.RawMessage   `json:"egress,omitempty" doc:"Its own policy document, if it has one."`
	EgressVersion int64             `json:"egress_version,omitempty" doc:"Of that document."`
	CPUs          string            `json:"cpus"`
	Memory        string            `json:"memory"`
	Timeout       int64             `json:"timeout_seconds"`
	Template      string            `json:"template"`
	Isolation     string            `json:"isolation"`
	CreatedAt     time.Time         `json:"created_at"`
	ExpiresAt     time.Time         `json:"expires_at"`
	EndedAt       *time.Time        `json:"ended_at,omitempty"`
	Startup       startMetrics      `json:"startup_metrics"`
}

type startMetrics struct {
	TotalMS  int64        `json:"total_ms"`
	CreateMS int64        `json:"pod_creation_ms"`
	ReadyMS  int64        `json:"pod_ready_ms"`
	Phases   []startPhase `json:"phases,omitempty"`
}

type startPhase struct {
	Name string `json:"name"`
	MS   int64  `json:"durationMs"`
}

type sandboxOut struct {
	Body sandboxView
}

type sandboxListOut struct {
	Body struct {
		Sandboxes []sandboxView `json:"sandboxes" nullable:"false"`
	}
}

type statusOut struct {
	Body struct {
		SandboxID string    `json:"sandbox_id"`
		Status    string    `json:"status"`
		Reason    string    `json:"reason,omitempty"`
		ExpiresAt time.Time `json:"expires_at"`
	}
}

type extendIn struct {
	ID   string `path:"id"`
	Body struct {
		Seconds int64 `json:"additional_seconds" minimum:"1" maximum:"86400"`
	}
}

func (s *Server) sandboxRoutes() {
	tags := []string{"sandboxes"}
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "create-sandbox", Method: http.MethodPost, Path: "/sandbox/create", Summary: "Create a sandbox",
		Description: "Answers when it is usable.", DefaultStatus: http.StatusCreated, Tags: tags}, s.createSandbox)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "list-sandboxes", Method: http.MethodGet, Path: "/sandboxes", Summary: "List sandboxes", Tags: tags}, s.listSandboxes)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "get-sandbox", Method: http.MethodGet, Path: "/sandbox/{id}", Summary: "Get a sandbox", Tags: tags}, s.getSandbox)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "get-sandbox-status", Method: http.MethodGet, Path: "/sandbox/{id}/status", Summary: "Get a sandbox's status", Tags: tags}, s.sandboxStatus)
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "stop-sandbox", Method: http.MethodPost, Path: "/sandbox/{id}/stop", Summary: "Stop and delete a sandbox", Tags: tags}, s.ending(audit.SandboxStop))
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "delete-sandbox", Method: http.MethodDelete, Path: "/sandbox/{id}", Summary: "Delete a sandbox", Tags: tags}, s.ending(audit.SandboxDelete))
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "extend-sandbox", Method: http.MethodPost, Path: "/sandbox/{id}/extend", Summary: "Move a sandbox's end", Tags: tags}, s.extendSandbox)
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "pause-sandbox", Method: http.MethodPost, Path: "/sandbox/{id}/pause", Summary: "Pause a sandbox", Tags: tags}, s.command(s.Sandboxes.Pause))
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "resume-sandbox", Method: http.MethodPost, Path: "/sandbox/{id}/resume", Summary: "Resume a sandbox", Tags: tags}, s.command(s.Sandboxes.Resume))
}

func (s *Server) createSandbox(ctx context.Context, c *caller, in *sandboxCreateIn) (*sandboxOut, error) {
	order, err := s.order(ctx, c, in)
	if err != nil {
		return nil, err
	}
	b, err := s.Sandboxes.Create(ctx, c.By, order)
	if err != nil {
		return nil, err
	}
	return s.sandboxAnswer(ctx, b)
}

func (s *Server) order(ctx context.Context, c *caller, in *sandboxCreateIn) (o sandboxes.Order, err error) {
	if in.Body.Org != "" && in.Body.Org != c.org() {
		return o, problem(http.StatusForbidden, "org_mismatch", "the key belongs to another org", FieldError{"body.org_id", "is not the key's org"})
	}
	o.Spec = store.SandboxSpec{CPUs: in.Body.CPUs, Memory: in.Body.Memory, Timeout: in.Body.Timeout, Env: in.Body.Env, Template: in.Body.Template, Isolation: "gvisor"}
	o.Kind, o.Spec.Labels = store.SandboxKind(in.Body.Kind), in.Body.Labels
	if err := checkLabels(in.Body.Labels); err != nil {
		return o, err
	}
	if o.Kind == store.Attached {
		if err := attachable(in); err != nil {
			return o, err
		}
	} else if o.Spec.Template == "" {
		o.Spec.Template = s.Template()
	}
	var ok bool
	if o.Spec.MilliCPU, ok = quantity.Millis(in.Body.CPUs); !ok {
		return o, invalid("body.cpus", "must be a quantity like 2 or 500m")
	}
	if o.Spec.MilliCPU > s.Limits.MilliCPU {
		return o, invalid("body.cpus", fmt.Sprintf("is over the limit of %dm", s.Limits.MilliCPU))
	}
	if o.Spec.MemoryBytes, ok = quantity.Bytes(in.Body.Memory); !ok {
		return o, invalid("body.memory", "must be a quantity like 512Mi or 2Gi")
	}
	if o.Spec.MemoryBytes < 16<<20 || o.Spec.MemoryBytes > s.Limits.MemoryBytes {
		return o, invalid("body.memory", fmt.Sprintf("must be from 16Mi to %dMi", s.Limits.MemoryBytes>>20))
	}
	if d := time.Duration(in.Body.Timeout) * time.Second; d > s.Limits.Lifetime {
		return o, invalid("body.timeout_seconds", fmt.Sprintf("is over the limit of %d", int64(s.Limits.Lifetime.Seconds())))
	}
	if w := in.Body.Workspace; w != nil && w.Size != "" {
		if o.Spec.WorkspaceSize, ok = quantity.Bytes(w.Size); !ok {
			return o, invalid("body.workspace.size", "must be a quantity like 512Mi or 2Gi")
		}
		if o.Spec.WorkspaceSize < 1<<20 || o.Spec.WorkspaceSize > s.Limits.Workspace {
			return o, invalid("body.workspace.size", fmt.Sprintf("must be from 1Mi to %dMi", s.Limits.Workspace>>20))
		}
	}
	if err := checkEnv("body.env", in.Body.Env); err != nil {
		return o, err
	}
	if o.Own, err = s.ownList(in.Body.Egress); err != nil {
		return o, err
	}
	if in.Body.Policy == "" {
		return o, nil
	}
	o.Policy = &in.Body.Policy
	return o, s.mayGive(ctx, c, in.Body.Policy)
}

// mayGive refuses a policy that the key does not list. The org's default is everybody's.
func (s *Server) mayGive(ctx context.Context, c *caller, policy string) error {
	if !policyName.MatchString(policy) {
		return invalid("body.policy", "is not a policy name")
	}
	if c.Principal.MayGive(policy) {
		return nil
	}
	settings, err := s.Store.Settings(ctx, c.org())
	if err != nil {
		return err
	}
	if settings.DefaultPolicy == policy {
		return nil
	}
	return problem(http.StatusForbidden, "policy_not_given", "the key may not give this policy", FieldError{"body.policy", "is not in the key's list"})
}

func checkEnv(location string, env map[string]string) error {
	total := 0
	for name, value := range env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			return invalid(location, "holds an impossible name or value")
		}
		total += len(name) + len(value) + 2
	}
	if len(env) > 1000 || total > 128<<10 {
		return invalid(location, "is over its limit of 1,000 variables and 128 KiB")
	}
	return nil
}

func (s *Server) listSandboxes(ctx context.Context, c *caller, in *sandboxListIn) (*sandboxListOut, error) {
	if in.Org != "" && in.Org != c.org() {
		return nil, problem(http.StatusForbidden, "org_mismatch", "the key belongs to another org", FieldError{"query.org_id", "is not the key's org"})
	}
	since := s.Now().Add(time.Hour)
	if in.All {
		since = s.Now().Add(-24 * time.Hour)
	}
	all, err := s.Store.Sandboxes(ctx, c.org(), since, 1000)
	if err != nil {
		return nil, err
	}
	versions, err := s.versions(ctx, c.org())
	if err != nil {
		return nil, err
	}
	out := &sandboxListOut{}
	out.Body.Sandboxes = []sandboxView{}
	for _, b := range all {
		out.Body.Sandboxes = append(out.Body.Sandboxes, viewSandbox(b, versions))
	}
	return out, nil
}

// versions returns the current version of each document of the org, by name.
func (s *Server) versions(ctx context.Context, org string) (map[string]int64, error) {
	named, err := s.Store.Policies(ctx, org)
	if err != nil {
		return nil, err
	}
	ceiling, err := s.Store.Policy(ctx, org, store.Ceiling)
	if err != nil {
		return nil, err
	}
	v := map[string]int64{store.Ceiling: ceiling.Version}
	for _, p := range named {
		v[p.Name] = p.Version
	}
	return v, nil
}

// sandbox returns a sandbox of the caller's org, or the refusal.
func (s *Server) sandbox(ctx context.Context, c *caller, id string) (store.Sandbox, error) {
	b, err := s.Store.Sandbox(ctx, c.org(), id)
	if errors.Is(err, store.ErrNotFound) {
		return b, notFound("sandbox")
	}
	return b, err
}

func (s *Server) getSandbox(ctx context.Context, c *caller, in *sandboxIDIn) (*sandboxOut, error) {
	b, err := s.sandbox(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	return s.sandboxAnswer(ctx, b)
}

func (s *Server) sandboxStatus(ctx context.Context, c *caller, in *sandboxIDIn) (*statusOut, error) {
	b, err := s.sandbox(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	out := &statusOut{}
	out.Body.SandboxID, out.Body.Status, out.Body.Reason, out.Body.ExpiresAt = b.ID, string(b.Status), b.Reason, b.ExpiresAt
	return out, nil
}

func (s *Server) ending(action audit.Action) func(context.Context, *caller, *sandboxIDIn) (*success, error) {
	return func(ctx context.Context, c *caller, in *sandboxIDIn) (*success, error) {
		_, err := s.Sandboxes.Delete(ctx, c.By, in.ID, action)
		if errors.Is(err, store.ErrNotFound) {
			return nil, notFound("sandbox")
		}
		if err != nil {
			return nil, s.nodeRefused(err)
		}
		s.routesKnow(ctx)
		return succeeded(), nil
	}
}

// routesKnow waits until ingress has what was just committed, so that whoever calls through a tunnel after our answer meets the
// sandbox as we said that it is.
func (s *Server) routesKnow(ctx context.Context) {
	revision, err := s.Store.Revision(ctx)
	if err == nil {
		err = s.routed(ctx, revision)
	}
	if err != nil {
		s.Log.Warn("ingress does not know of a change yet", "err", err, "request_id", requestID(ctx))
	}
}

func (s *Server) command(do func(context.Context, store.By, string) (store.Sandbox, error)) func(context.Context, *caller, *sandboxIDIn) (*sandboxOut, error) {
	return func(ctx context.Context, c *caller, in *sandboxIDIn) (*sandboxOut, error) {
		b, err := do(ctx, c.By, in.ID)
		if err != nil {
			return nil, s.stateRefused(b, err)
		}
		s.routesKnow(ctx)
		return s.sandboxAnswer(ctx, b)
	}
}

func (s *Server) extendSandbox(ctx context.Context, c *caller, in *extendIn) (*sandboxOut, error) {
	b, err := s.Sandboxes.Extend(ctx, c.By, in.ID, time.Duration(in.Body.Seconds)*time.Second, s.Limits.Lifetime)
	if errors.Is(err, store.ErrLimit) {
		return nil, invalid("body.additional_seconds", fmt.Sprintf("would make the sandbox live longer than %d seconds in all", int64(s.Limits.Lifetime.Seconds())))
	}
	if err != nil {
		return nil, s.stateRefused(b, err)
	}
	return s.sandboxAnswer(ctx, b)
}

// stateRefused names the state that stands in the way.
func (s *Server) stateRefused(b store.Sandbox, err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return notFound("sandbox")
	case errors.Is(err, sandboxes.ErrAttached):
		return isAttached()
	case errors.Is(err, sandboxes.ErrState) && b.Status != "":
		return notRunning(b)
	}
	return s.nodeRefused(err)
}

// nodeRefused passes our own errors on and calls every other a fault of the node.
func (s *Server) nodeRefused(err error) error {
	if p := refuse(err); p.Code != "internal" {
		return err
	}
	s.Log.Error("node", "err", err)
	return problem(http.StatusServiceUnavailable, sandboxes.ReasonNode, "the node did not do it").with("Retry-After", "2")
}

// notRunning is the refusal for a sandbox in the wrong state; its code is the reason where that says more.
func notRunning(b store.Sandbox) *Problem {
	if b.Kind == store.Attached && !b.Status.Ended() {
		return isAttached()
	}
	code, detail := "sandbox_not_running", "the sandbox is "+string(b.Status)
	if b.Status == store.Failed && b.Reason == sandboxes.ReasonOOM {
		code, detail = sandboxes.ReasonOOM, "the sandbox ran out of memory and was ended"
	} else if b.Reason != "" {
		detail += ": " + b.Reason
	}
	return problem(http.StatusConflict, code, detail)
}

func (s *Server) sandboxAnswer(ctx context.Context, b store.Sandbox) (*sandboxOut, error) {
	p, err := s.Store.Policy(ctx, b.Org, b.Policy)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	return &sandboxOut{Body: viewSandbox(b, map[string]int64{b.Policy: p.Version})}, nil
}

func viewSandbox(b store.Sandbox, versions map[string]int64) sandboxView {
	v := sandboxView{
		SandboxID: b.ID, ID: b.ID, Org: b.Org, Session: b.ID, Kind: string(b.Kind), Labels: b.Spec.Labels, Status: string(b.Status), Reason: b.Reason, Addr: b.Addr, PodIP: b.Addr, RunscID: b.RunscID,
		Incarnation: b.Incarnation, Generation: b.Generation, Policy: b.Policy, PolicyVersion: versions[b.Policy], Egress: b.Own,
		CPUs: b.Spec.CPUs, Memory: b.Spec.Memory, Timeout: b.Spec.Timeout, Template: b.Spec.Template, Isolation: b.Spec.Isolation,
		CreatedAt: b.CreatedAt, ExpiresAt: b.ExpiresAt, EndedAt: timeOrNil(b.EndedAt),
		Startup: startMetrics{TotalMS: b.Metrics.TotalMS, CreateMS: b.Metrics.CreateMS, ReadyMS: b.Metrics.ReadyMS},
	}
	if b.Own != nil {
		v.EgressVersion = b.OwnVersion
	}
	for _, p := range b.Metrics.Phases {
		v.Startup.Phases = append(v.Startup.Phases, startPhase(p))
	}
	return v
}
