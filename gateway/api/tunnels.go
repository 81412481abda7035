package api

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"portreeve.dev/gateway/audit"
	"portreeve.dev/gateway/internal/store"
	tunnels "portreeve.dev/ingress/route"
	"portreeve.dev/policies/inbound"
	"portreeve.dev/sso"
)

// What tunnels are opened with and bounded by.
const (
	tunnelLifetime = time.Hour // where none is asked for
	tunnelsEach    = 32        // live, per sandbox
	tokenPrefix    = "prt_"
)

// Tunnels says under which names tunnels are opened, and where they answer.
type Tunnels struct {
	Zone  tunnels.Zone // of their names; the zero Zone refuses every tunnel
	Port  string       // of their URLs; empty is the scheme's own
	Plain bool         // they answer on plain HTTP too (development)
	// Routed returns once ingress has the routes of that revision; nil waits for nothing.
	Routed func(ctx context.Context, revision int64) error
}

type tunnelView struct {
	ID        string    `json:"id"`
	Sandbox   string    `json:"sandbox_id"`
	URL       string    `json:"url"`
	HTTPURL   string    `json:"http_url,omitempty" doc:"The same without TLS, in development: browsers take it as secure."`
	Port      uint16    `json:"port"`
	Protocol  string    `json:"protocol"`
	Public    bool      `json:"public"`
	Token     string    `json:"token,omitempty" doc:"Shown once. Send it as X-Portreeve-Token, or open the URL with ?portreeve_token= once."`
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
}

type tunnelCreateIn struct {
	ID   string `path:"id"`
	Body struct {
		Port      int    `json:"port" minimum:"1" maximum:"65535" doc:"On which the application listens, on any address or only on loopback."`
		Protocol  string `json:"protocol,omitempty" enum:"http,https" doc:"Accepted for known clients; the application is spoken to in HTTP."`
		ExpiresIn int64  `json:"expires_in,omitempty" minimum:"1" maximum:"86400" doc:"Seconds; default 3600, or what the org's ingress policy allows at most. A tunnel ends with its sandbox at the latest."`
		Public    bool   `json:"public,omitempty" doc:"Anybody who knows the URL may call it. Refused for a sandbox to which a grant of a secret applies, unless the org's ingress policy allows that."`
	}
}

type tunnelOut struct {
	Body tunnelView
}

type tunnelListOut struct {
	Body struct {
		Tunnels []tunnelView `json:"tunnels" nullable:"false"`
	}
}

type tunnelIDIn struct {
	ID     string `path:"id"`
	Tunnel string `path:"tunnel"`
}

func (s *Server) tunnelRoutes() {
	tags := []string{"tunnels"}
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "create-tunnel", Method: http.MethodPost, Path: "/sandbox/{id}/tunnels", Summary: "Give a port a public name",
		DefaultStatus: http.StatusCreated, Tags: tags}, s.createTunnel)
	route(s, sso.ScopeRead, huma.Operation{OperationID: "list-tunnels", Method: http.MethodGet, Path: "/sandbox/{id}/tunnels", Summary: "List a sandbox's tunnels", Tags: tags}, s.listTunnels)
	route(s, sso.ScopeWrite, huma.Operation{OperationID: "delete-tunnel", Method: http.MethodDelete, Path: "/sandbox/{id}/tunnels/{tunnel}", Summary: "End a tunnel", Tags: tags}, s.deleteTunnel)
}

func (s *Server) viewTunnel(t store.Tunnel) tunnelView {
	host := t.Host
	if s.Tunnels.Port != "" {
		host += ":" + s.Tunnels.Port
	}
	v := tunnelView{ID: t.ID, Sandbox: t.Sandbox, URL: "https://" + host, Port: t.Port, Protocol: "http", Public: t.Public, CreatedAt: t.CreatedAt, ExpiresAt: t.ExpiresAt}
	if s.Tunnels.Plain {
		v.HTTPURL = "http://" + host
	}
	return v
}

func (s *Server) createTunnel(ctx context.Context, c *caller, in *tunnelCreateIn) (*tunnelOut, error) {
	t := store.Tunnel{ID: store.NewID("tun"), Sandbox: in.ID, Port: uint16(in.Body.Port), Public: in.Body.Public}
	var err error
	if t.Host, err = s.Tunnels.Zone.Host(tunnels.NewSlug(), t.Port); err != nil {
		return nil, problem(http.StatusServiceUnavailable, "no_tunnels", "this installation has no domain for tunnels")
	}
	token := ""
	if !t.Public {
		token = tokenPrefix + strings.ToLower(rand.Text())
		sum := sha256.Sum256([]byte(token))
		t.TokenHash = sum[:]
	}
	revision, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) (err error) {
		t, err = openTunnel(ctx, tx, t, time.Duration(in.Body.ExpiresIn)*time.Second)
		return err
	})
	if refused, ok := errors.AsType[*tunnelRefused](err); ok {
		return nil, s.refuseTunnel(ctx, c, t, refused)
	}
	if err != nil {
		return nil, err
	}
	if err := s.routed(ctx, revision); err != nil {
		s.Log.Warn("a new tunnel is not at ingress yet", "tunnel", t.ID, "err", err, "request_id", requestID(ctx))
	}
	out := &tunnelOut{s.viewTunnel(t)}
	out.Body.Token = token
	return out, nil
}

// openTunnel enters a tunnel that ends after lifetime, or with its sandbox; 0 is the usual lifetime. Where the org's ingress policy
// refuses it, the error is a tunnelRefused.
func openTunnel(ctx context.Context, tx *store.Tx, t store.Tunnel, lifetime time.Duration) (store.Tunnel, error) {
	b, err := tx.Sandbox(ctx, tx.Org(), t.Sandbox)
	if errors.Is(err, store.ErrNotFound) {
		return t, notFound("sandbox")
	}
	if err != nil {
		return t, err
	}
	if b.Kind == store.Attached || b.Status != store.Running && b.Status != store.Paused || !tx.Now().Before(b.ExpiresAt) {
		return t, notRunning(b)
	}
	policy, err := tx.IngressPolicy(ctx, tx.Org())
	if err != nil {
		return t, err
	}
	all, err := tx.Secrets(ctx, tx.Org())
	if err != nil {
		return t, err
	}
	secret := grantedTo(all, b.Policy)
	if lifetime == 0 {
		lifetime = min(tunnelLifetime, policy.Lifetime())
	}
	if v := policy.Evaluate(inbound.Request{Public: t.Public, Port: t.Port, Lifetime: lifetime, Granted: secret != ""}); !v.Allowed() {
		return t, &tunnelRefused{v, secret}
	}
	t.ExpiresAt = tx.Now().Add(lifetime)
	if b.ExpiresAt.Before(t.ExpiresAt) {
		t.ExpiresAt = b.ExpiresAt
	}
	t, err = tx.CreateTunnel(ctx, t, tunnelsEach)
	if errors.Is(err, store.ErrLimit) {
		return t, problem(http.StatusConflict, "too_many_tunnels", fmt.Sprintf("a sandbox has at most %d tunnels; end one first", tunnelsEach))
	}
	if err != nil {
		return t, err
	}
	tx.Bump()
	return t, tx.Record(ctx, audit.TunnelCreate, t.ID, map[string]string{"sandbox": b.ID, "port": fmt.Sprint(t.Port), "public": fmt.Sprint(t.Public)})
}

func (s *Server) listTunnels(ctx context.Context, c *caller, in *sandboxIDIn) (*tunnelListOut, error) {
	if _, err := s.sandbox(ctx, c, in.ID); err != nil {
		return nil, err
	}
	all, err := s.Store.Tunnels(ctx, c.org(), in.ID, s.Now())
	if err != nil {
		return nil, err
	}
	out := &tunnelListOut{}
	out.Body.Tunnels = []tunnelView{}
	for _, t := range all {
		out.Body.Tunnels = append(out.Body.Tunnels, s.viewTunnel(t))
	}
	return out, nil
}

func (s *Server) deleteTunnel(ctx context.Context, c *caller, in *tunnelIDIn) (*success, error) {
	revision, err := s.Store.Change(ctx, c.By, func(tx *store.Tx) error {
		if err := tx.DeleteTunnel(ctx, in.ID, in.Tunnel); err != nil {
			return err
		}
		tx.Bump()
		return tx.Record(ctx, audit.TunnelDelete, in.Tunnel, map[string]string{"sandbox": in.ID})
	})
	if errors.Is(err, store.ErrNotFound) {
		return nil, notFound("tunnel")
	}
	if err != nil {
		return nil, err
	}
	if err := s.routed(ctx, revision); err != nil {
		s.Log.Warn("a deleted tunnel may still be open at ingress", "tunnel", in.Tunnel, "err", err, "request_id", requestID(ctx))
		return nil, problem(http.StatusGatewayTimeout, "not_applied", fmt.Sprintf("the tunnel is deleted as of revision %d, but ingress has not acknowledged it", revision))
	}
	return succeeded(), nil
}

// routed tells ingress and waits for it, not for long.
func (s *Server) routed(ctx context.Context, revision int64) error {
	s.Feed.Publish(ctx, revision)
	if s.Tunnels.Routed == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.Applied)
	defer cancel()
	return s.Tunnels.Routed(ctx, revision)
}
