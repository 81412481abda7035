package cgroup

import (
	"context"
	"time"
)

// timeout is for roles, which end with their process.
func timeout() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	context.AfterFunc(ctx, cancel)
	return ctx
}
