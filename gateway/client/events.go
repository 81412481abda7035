package client

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
)

// An Event is one message of a server-sent event stream.
type Event struct {
	Name string // empty for most
	ID   string
	Data string // empty: it only says how far the stream is
}

// Follow is Events of a GET that goes on behind the event with the id last, if that isn't empty. Its end is never a good one.
func (c *Client) Follow(ctx context.Context, path, last string, each func(Event) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "ApiKey "+c.key)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return unreachable(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return problem(resp)
	}
	return readEvents(resp, each)
}

// Events reads the stream at path and calls each for every event, until the stream or ctx ends or each fails.
func (c *Client) Events(ctx context.Context, method, path string, body io.Reader, each func(Event) error) error {
	resp, err := c.Send(ctx, method, path, "application/json", body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return readEvents(resp, each)
}

func readEvents(resp *http.Response, each func(Event) error) error {
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 4<<20)
	var e Event
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if e.Data != "" || e.ID != "" {
				if err := each(e); err != nil {
					return err
				}
			}
			e = Event{}
		case name == "id":
			e.ID = value
		case name == "event":
			e.Name = value
		case name == "data" && e.Data != "":
			e.Data += "\n" + value
		case name == "data":
			e.Data = value
		}
	}
	return lines.Err()
}
