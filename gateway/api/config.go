package api

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"time"

	"portreeve.dev/gateway/authorities"
	"portreeve.dev/gateway/canary"
	"portreeve.dev/gateway/internal/store"
	"portreeve.dev/gateway/limits"
	"portreeve.dev/gateway/sandboxes"
	"portreeve.dev/policies"
	"portreeve.dev/secrets/seal"
	"portreeve.dev/sso"
)

// A Config is what a Server needs.
type Config struct {
	Store     *store.Store
	Sandboxes *sandboxes.Service
	Guest     Guest
	Feed      sandboxes.Feed
	Keyring   *seal.Keyring   // seals the values of secrets
	Webhooks  Webhooks        // nil: none are sent
	Floor     *policies.Floor // without exemptions: what judges names, and new exemptions

	FloorNow   func(context.Context) (*policies.Floor, error) // what check judges addresses by: the edges' own, at this moment; default Floor
	Configured []policies.Exemption                           // those of the configuration, to be shown

	Flows   Flows         // live connections; nil: no edge can be asked
	Egress  limits.Limits // of each org, as the platform sets them
	Tunnels Tunnels
	Doors   Doors

	Authorities *authorities.Service

	SetupToken sso.Secret    // registers one org; zero: nobody can register
	Version    string        // of the program, for the OpenAPI document
	Template   func() string // for a create that names none; default "base". It may say "tiny" until base is built.
	Limits     Limits
	CursorKey  []byte // signs cursors; default random, so that cursors end with the process
	// Settle has what is recorded by now brought into the store, if that takes no longer than a moment; nil does nothing.
	Settle func(context.Context)
	// Denial says when a sandbox was last seen to reach nothing; false: nobody looks.
	Denial    func() (canary.Proof, bool)
	Heartbeat time.Duration // of event streams; default 15 s
	Applied   time.Duration // longest ?wait=applied; default 10 s
	Now       func() time.Time
	Log       *slog.Logger
}

// Limits bound one sandbox.
type Limits struct {
	MilliCPU    int64         // default 8,000
	MemoryBytes int64         // default 8 GiB
	Workspace   int64         // bytes; default 10 GiB
	Lifetime    time.Duration // default 24 h, also the most
}

func (c *Config) complete() error {
	if c.Store == nil || c.Sandboxes == nil || c.Guest == nil || c.Feed == nil || c.Floor == nil || c.Keyring == nil || c.Authorities == nil {
		return errors.New("the API needs a store, sandboxes, a guest, a feed, a floor, a keyring and authorities")
	}
	if c.FloorNow == nil {
		c.FloorNow = func(context.Context) (*policies.Floor, error) { return c.Floor, nil }
	}
	if c.Template == nil {
		c.Template = func() string { return "base" }
	}
	if c.Flows == nil {
		c.Flows = noEdge{}
	}
	if c.Settle == nil {
		c.Settle = func(context.Context) {}
	}
	if c.Denial == nil {
		c.Denial = func() (canary.Proof, bool) { return canary.Proof{}, false }
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if len(c.CursorKey) == 0 {
		c.CursorKey = make([]byte, 32)
		rand.Read(c.CursorKey)
	}
	orDefault(&c.Heartbeat, 15*time.Second)
	orDefault(&c.Applied, 10*time.Second)
	orDefault(&c.Limits.MilliCPU, 8_000)
	orDefault(&c.Limits.MemoryBytes, 8<<30)
	orDefault(&c.Limits.Workspace, 10<<30)
	orDefault(&c.Limits.Lifetime, 24*time.Hour)
	c.Limits.Lifetime = min(c.Limits.Lifetime, 24*time.Hour)
	return nil
}

func orDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}
