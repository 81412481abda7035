package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"portreeve.dev/nodes/guest/frame"
)

// Dial returns a new connection whose other end ServeOperation serves. It is called once per operation.
type Dial func(ctx context.Context) (net.Conn, error)

// Client runs operations in one sandbox from control's side. It is safe for concurrent use.
//
// Failures of the sandbox are OperationErrors that match a sentinel; failures of the way there are wrapped as they are.
type Client struct {
	dial Dial
}

// NewClient returns a Client that gets its connections from dial.
func NewClient(dial Dial) *Client { return &Client{dial: dial} }

// call is one running operation.
type call struct {
	*exchange
	ctx  context.Context
	conn net.Conn
	r    *frame.Reader
	w    *frame.Writer
	stop func() bool
}

// start dials and sends op. ctx bounds the whole operation: at its end the connection closes.
func (c *Client) start(ctx context.Context, op frame.Operation) (*call, error) {
	if op.Message != nil {
		if err := op.Message.Check(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadRequest, err)
		}
	}
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("reaching the sandbox: %w", err)
	}
	k := &call{exchange: newExchange(op), ctx: ctx, conn: conn, r: frame.NewReader(conn), w: frame.NewWriter(conn)}
	k.stop = context.AfterFunc(ctx, func() { conn.Close() })
	if err := op.Send(k.w); err != nil {
		k.close()
		if errors.Is(err, frame.ErrFormat) {
			return nil, fmt.Errorf("%w: operation over %d bytes", ErrTooLarge, frame.MaxPayload)
		}
		return nil, k.why(err)
	}
	return k, nil
}

// next returns the next frame. An Error frame becomes an error.
func (k *call) next() (frame.Type, []byte, error) {
	t, payload, err := k.r.Next(frame.MaxPayload)
	if err == nil {
		payload, err = k.fromInit(t, payload)
	}
	if err == nil && t == frame.Error {
		err = operationError(payload)
	}
	return t, payload, k.why(err)
}

// why names ctx's end as the reason, where it is, and never passes an end of the connection on as io.EOF, which readers take for success.
func (k *call) why(err error) error {
	var answer *OperationError
	switch {
	case err == nil, errors.As(err, &answer):
		return err
	case k.ctx.Err() != nil:
		return k.ctx.Err()
	case errors.Is(err, frame.ErrFormat):
		return fmt.Errorf("%w: %w", ErrHostile, err)
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: connection closed", ErrUnavailable)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

func (k *call) close() {
	k.stop()
	k.conn.Close()
}
