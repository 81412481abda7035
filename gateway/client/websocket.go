package client

import (
	"context"
	"net/http"

	"github.com/coder/websocket"
)

// WebSocket opens a WebSocket at path.
func (c *Client) WebSocket(ctx context.Context, path string) (*websocket.Conn, error) {
	conn, resp, err := websocket.Dial(ctx, c.base+path, &websocket.DialOptions{
		HTTPClient: c.http,
		HTTPHeader: http.Header{"Authorization": {"ApiKey " + c.key}},
	})
	if err == nil {
		conn.SetReadLimit(1 << 20)
		return conn, nil
	}
	if resp != nil && resp.StatusCode >= 400 {
		return nil, problem(resp)
	}
	return nil, unreachable(err)
}
