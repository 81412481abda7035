package server

import (
	"context"
	"errors"
	"time"

	"portreeve.dev/gateway/link"
)

// every calls f once in each period until ctx ends. What goes wrong is logged when it begins, not each time; a node that is away is no news.
func (c *control) every(ctx context.Context, period time.Duration, what string, f func(context.Context) error) {
	tick := time.NewTicker(period)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := f(ctx)
		if err == nil || ctx.Err() != nil {
			said = ""
			continue
		}
		if text := err.Error(); text != said && !errors.Is(err, link.ErrClosed) {
			c.log.Error(what, "err", err)
			said = text
		}
	}
}
