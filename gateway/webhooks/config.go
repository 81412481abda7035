package webhooks

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"time"
)

// A Queue keeps what is to be sent. Safe for concurrent use.
type Queue interface {
	// DueWebhooks claims the longest due delivery of each endpoint for which take says yes; what is not settled within the lease
	// comes again.
	DueWebhooks(ctx context.Context, lease time.Duration, take func(org, endpoint string) bool) ([]Delivery, error)
	// SettleWebhook writes down how a try ended, and when there will be another; never, if again is zero.
	SettleWebhook(ctx context.Context, id string, o Outcome, again time.Time) error
	// WebhooksQueued returns a channel that is closed when something new is queued.
	WebhooksQueued() <-chan struct{}
}

// A Config is what a Sender needs. The first three must be set.
type Config struct {
	Queue Queue
	// Dial connects to a host and port in the name of an org, under the floor.
	Dial func(ctx context.Context, org, host string, port uint16) (net.Conn, error)
	// Secrets opens the active secrets of an endpoint.
	Secrets func(e Endpoint, sealed []byte) ([][]byte, error)

	Roots    *x509.CertPool // of receivers; nil means the system's
	Parallel int            // tries at once; default 16
	PerOrg   int            // of one org; default 4
	Poll     time.Duration  // how often the queue is looked at without being told; default 1 s
	Log      *slog.Logger
	Now      func() time.Time
}

const (
	longest  = 10 * time.Second // of a try, whatever the endpoint says
	lease    = time.Minute
	maxDelay = time.Hour
	maxHead  = 16 << 10 // of an answer
	maxBody  = 4 << 10  // of an answer that is read
)

func (c *Config) complete() error {
	if c.Queue == nil || c.Dial == nil || c.Secrets == nil {
		return errors.New("webhooks: queue, dial and secrets are all needed")
	}
	if c.Parallel <= 0 {
		c.Parallel = 16
	}
	if c.PerOrg <= 0 {
		c.PerOrg = 4
	}
	if c.Poll <= 0 {
		c.Poll = time.Second
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return nil
}
