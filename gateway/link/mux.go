package link

import (
	"context"
	"fmt"
	"os"
)

// A Mux holds the methods that a peer may call. Register them all before the Conn runs.
type Mux struct {
	methods map[string]func(context.Context, *message) (any, []*os.File, error)
}

// NewMux returns a Mux without methods: every call is refused.
func NewMux() *Mux {
	return &Mux{methods: make(map[string]func(context.Context, *message) (any, []*os.File, error))}
}

// Handle registers a method that takes no files and returns none.
func Handle[In, Out any](mux *Mux, method string, f func(context.Context, In) (Out, error)) {
	HandleFiles(mux, method, func(ctx context.Context, in In, files []*os.File) (Out, []*os.File, error) {
		closeAll(files)
		out, err := f(ctx, in)
		return out, nil, err
	})
}

// HandleFiles registers a method that takes files, which it then owns, or returns some, which are closed once sent.
func HandleFiles[In, Out any](mux *Mux, method string, f func(context.Context, In, []*os.File) (Out, []*os.File, error)) {
	mux.methods[method] = func(ctx context.Context, m *message) (any, []*os.File, error) {
		var in In
		if err := strictly(m.Body, &in); err != nil {
			closeAll(m.files)
			return nil, nil, &Error{Code: "invalid", Message: fmt.Sprintf("decoding %q: %v", method, err)}
		}
		return f(ctx, in, m.files)
	}
}

func (mux *Mux) serve(ctx context.Context, m *message) (any, []*os.File, error) {
	f, ok := mux.methods[m.Method]
	if !ok {
		closeAll(m.files)
		return nil, nil, &Error{Code: "unknown_method", Message: fmt.Sprintf("method %q is not for this peer", m.Method)}
	}
	return f(ctx, m)
}
