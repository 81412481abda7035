package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// An Answer is what the product's API said.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

func (a Answer) String() string { return fmt.Sprintf("%d %s", a.Status, a.Body) }

// Into decodes the body.
func (a Answer) Into(out any) error {
	if err := json.Unmarshal(a.Body, out); err != nil {
		return fmt.Errorf("reading %s: %w", a, err)
	}
	return nil
}

// API calls the product's API with its key: a path like /sandboxes, and a body that is sent as JSON, as it is when it
// is a string, or not at all when it is nil.
func (p *Product) API(method, path string, body any) (Answer, error) {
	return p.Call(p.Info.APIKey, method, path, body)
}

// Call is API with another key, or none when it is "".
func (p *Product) Call(key, method, path string, body any) (Answer, error) {
	var send []byte
	switch body := body.(type) {
	case nil:
	case string:
		send = []byte(body)
	default:
		var err error
		if send, err = json.Marshal(body); err != nil {
			return Answer{}, err
		}
	}
	req, err := http.NewRequest(method, strings.TrimSuffix(p.Info.APIURL, "/")+path, bytes.NewReader(send))
	if err != nil {
		return Answer{}, err
	}
	if key != "" {
		req.Header.Set("Authorization", "ApiKey "+key)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	client := p.lab.Client()
	client.Timeout = 3 * time.Minute
	// A call that says "close" is cut off by net/http when it is refused before its body was read.
	client.Transport.(*http.Transport).DisableKeepAlives = false
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	return Answer{resp.StatusCode, resp.Header, data}, err
}
