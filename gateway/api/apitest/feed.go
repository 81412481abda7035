package apitest

import (
	"context"
	"sync"

	"portreeve.dev/gateway/sandboxes"
)

// A Feed acknowledges every revision at once, unless it is silent.
type Feed struct {
	mu        sync.Mutex
	published []int64
	waited    []int64
	silent    bool
}

var _ sandboxes.Feed = (*Feed)(nil)

// Silent makes the edges stop to acknowledge, or begin again.
func (f *Feed) Silent(yes bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent = yes
}

// Published returns the revisions that were announced.
func (f *Feed) Published() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]int64(nil), f.published...)
}

// Applied returns the highest revision that somebody waited for and got.
func (f *Feed) Applied() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	var highest int64
	for _, r := range f.waited {
		highest = max(highest, r)
	}
	return highest
}

func (f *Feed) Publish(_ context.Context, revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.published = append(f.published, revision)
}

func (f *Feed) WaitApplied(ctx context.Context, revision int64) error {
	f.mu.Lock()
	silent := f.silent
	if !silent {
		f.waited = append(f.waited, revision)
	}
	f.mu.Unlock()
	if !silent {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}
