package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"portreeve.dev/gateway/client"
)

// ask reads an answer of the API into a form of ours, if there is one, and returns it as it came, for --output json.
func ask(ctx context.Context, api *client.Client, method, path string, body, into any) (json.RawMessage, error) {
	var raw json.RawMessage
	if err := api.Do(ctx, method, path, body, &raw); err != nil {
		return nil, err
	}
	if into == nil {
		return raw, nil
	}
	return raw, json.Unmarshal(raw, into)
}

// whole makes a request with headers and a body of any kind, "" for none, and returns the whole answer.
func whole(ctx context.Context, api *client.Client, method, path string, header http.Header, body string) ([]byte, error) {
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	resp, err := api.SendWith(ctx, method, path, header, from)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// answer makes a call and prints its answer: as it came, or as text says it once it is read as ask reads it.
func (a *app) answer(ctx context.Context, method, path string, body, into any, text func()) error {
	api, err := a.client()
	if err != nil {
		return err
	}
	raw, err := ask(ctx, api, method, path, body, into)
	if err != nil {
		return err
	}
	return a.print(raw, text)
}

// act makes a call whose answer only --output json shows.
func (a *app) act(ctx context.Context, method, path string, body any) error {
	return a.answer(ctx, method, path, body, nil, func() {})
}
