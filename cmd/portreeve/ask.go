package main

import (
	"context"
	"encoding/json"

	"portreeve.dev/gateway/client"
)

// ask reads an answer of the API into a form of ours, and returns it as it came, for --output json.
func ask(ctx context.Context, api *client.Client, method, path string, body, into any) (json.RawMessage, error) {
	var raw json.RawMessage
	if err := api.Do(ctx, method, path, body, &raw); err != nil {
		return nil, err
	}
	return raw, json.Unmarshal(raw, into)
}
