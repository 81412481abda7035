package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/policies/inbound"
	"portreeve.dev/sso"
)

type ingressView struct {
	inbound.Policy
	Version int64 `json:"version" doc:"0: the org set nothing, and has the default."`
	conformed
}

// errDryRun undoes what was only tried.
var errDryRun = errors.New("a dry run")

// conformed is what a new policy did to the tunnels that there were.
type conformed struct {
	Ended     []string `json:"ended,omitempty" doc:"Tunnels that the policy allows no longer."`
	Shortened []string `json:"shortened,omitempty" doc:"Tunnels that live no longer than the policy allows, from now on."`
}

type ingressOut struct {
	ETag string `header:"ETag"`
	Body ingressView
}

type ingressIn struct {
	IfMatch string `header:"If-Match"`
	Body    struct {
		inbound.Policy
		Version int64 `json:"version,omitempty" minimum:"0" doc:"Counts as If-Match."`
		DryRun  bool  `json:"dry_run,omitempty" doc:"Only say which tunnels it would end and shorten."`
	}
}

func (s *Server) ingressRoutes() {
	tags := []string{"tunnels"}
	route(s, sso.ScopeRead, huma.Operation{OperationID: "get-ingress-policy", Method: http.MethodGet, Path: "/settings/ingress", Summary: "Get what the org allows of tunnels", Tags: tags}, s.getIngress)
	route(s, sso.ScopeAdmin, huma.Operation{OperationID: "put-ingress-policy", Method: http.MethodPut, Path: "/settings/ingress", Summary: "Set what the org allows of tunnels",
		Description: "Tunnels that it refuses end, those that would live too long end earlier; both once ingress has acknowledged.", Tags: tags}, s.putIngress)
}

func (s *Server) getIngress(ctx context.Context, c *caller, _ *struct{}) (*ingressOut, error) {
	p, err := s.Store.IngressPolicy(ctx, c.org())
	if err != nil {
		return nil, err
	}
	return &ingressOut{etag(p.Version), ingressView{Policy: p.Policy, Version: p.Version}}, nil
}

func (s *Server) putIngress(ctx context.Context, c *caller, in *ingressIn) (*ingressOut, error) {
	expected, err := expectedVersion(in.IfMatch, in.Body.Version)
	if err != nil {
		return nil, err
	}
	if field, message := in.Body.Check(); field != "" {
		return nil, invalid("body."+field, message)
	}
	var stored store.IngressPolicy
	var done conformed
	revision, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		if stored, err = tx.PutIngressPolicy(ctx, in.Body.Policy, expected); err != nil {
			return err
		}
		if done, err = conform(ctx, tx, stored.Policy); err != nil {
			return err
		}
		if in.Body.DryRun {
			return errDryRun
		}
		tx.Bump()
		return tx.Record(ctx, audit.IngressUpdate, "settings:ingress", map[string]string{"version": strconv.FormatInt(stored.Version, 10),
			"modes": fmt.Sprint(stored.Modes), "ports": fmt.Sprint(stored.Ports), "max_expires_in": strconv.FormatInt(stored.MaxExpiresIn, 10),
			"public_with_grants": strconv.FormatBool(stored.PublicWithGrants), "anonymous_wakes_per_minute": strconv.Itoa(stored.AnonymousWakes),
			"ended": strconv.Itoa(len(done.Ended)), "shortened": strconv.Itoa(len(done.Shortened))})
	})
	if errors.Is(err, errDryRun) {
		return &ingressOut{etag(stored.Version - 1), ingressView{in.Body.Policy, stored.Version - 1, done}}, nil
	}
	if err != nil {
		return nil, err
	}
	if err := s.routed(ctx, revision); err != nil {
		s.Log.Warn("a new ingress policy is not at ingress yet", "err", err, "request_id", requestID(ctx))
		return nil, problem(http.StatusGatewayTimeout, "not_applied", fmt.Sprintf("the ingress policy is stored as of revision %d, but ingress has not acknowledged it", revision))
	}
	return &ingressOut{etag(stored.Version), ingressView{stored.Policy, stored.Version, done}}, nil
}

// conform ends the org's tunnels that the policy refuses, and shortens those that would live too long.
func conform(ctx context.Context, tx *store.Tx, policy inbound.Policy) (done conformed, err error) {
	live, err := tx.LiveTunnels(ctx, tx.Org(), tx.Earliest())
	if err != nil {
		return done, err
	}
	all, err := tx.Secrets(ctx, tx.Org())
	if err != nil {
		return done, err
	}
	latest := tx.Earliest().Add(policy.Lifetime())
	for _, t := range live {
		v := policy.Evaluate(inbound.Request{Public: t.Public, Port: t.Port, Granted: grantedTo(all, t.Policy) != ""})
		switch {
		case !v.Allowed():
			done.Ended = append(done.Ended, t.ID)
			err = endTunnel(ctx, tx, t.Tunnel, v)
		case t.ExpiresAt.After(latest):
			done.Shortened = append(done.Shortened, t.ID)
			if err = tx.ShortenTunnel(ctx, t.ID, latest); err == nil {
				err = tx.Record(ctx, audit.TunnelShorten, t.ID, map[string]string{"sandbox": t.Sandbox, "expires_at": latest.UTC().Format(time.RFC3339)})
			}
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func endTunnel(ctx context.Context, tx *store.Tx, t store.Tunnel, v inbound.Verdict) error {
	if err := tx.DeleteTunnel(ctx, t.Sandbox, t.ID); err != nil {
		return err
	}
	return tx.Record(ctx, audit.TunnelDelete, t.ID, map[string]string{"sandbox": t.Sandbox, "reason": "ingress_policy_" + string(v.Reason)})
}

// A tunnelRefused is the ingress policy's refusal to open a tunnel.
type tunnelRefused struct {
	inbound.Verdict
	secret string // that is granted to the sandbox
}

func (r *tunnelRefused) Error() string {
	return "the ingress policy refuses the tunnel: " + string(r.Reason)
}

// refuseTunnel writes the refusal into the audit log, and returns the answer.
func (s *Server) refuseTunnel(ctx context.Context, c *caller, t store.Tunnel, r *tunnelRefused) error {
	_, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) error {
		return tx.RecordOutcome(ctx, audit.TunnelCreate, t.ID, audit.Failure, map[string]string{"sandbox": t.Sandbox, "port": fmt.Sprint(t.Port), "public": fmt.Sprint(t.Public), "reason": string(r.Reason)})
	})
	if err != nil {
		return err
	}
	field := FieldError{"body." + r.Field, r.Message}
	if r.Reason == inbound.ReasonGrant {
		return problem(http.StatusConflict, "public_with_grant", fmt.Sprintf("secret %q is granted to this sandbox, so a tunnel of it can't be public: anybody could use the secret through it", r.secret), field)
	}
	return problem(http.StatusForbidden, "ingress_policy", r.Message, field)
}
