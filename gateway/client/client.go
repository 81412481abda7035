package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// A Client calls one Portreeve.
type Client struct {
	base string // ends in /api/v1
	key  string
	http *http.Client
}

// Info is what the commands need of an info file.
type Info struct {
	APIURL string `json:"api_url"`
	APIKey string `json:"api_key"`
}

// Open returns a client for the Portreeve that wrote the info file. PORTREEVE_URL and PORTREEVE_KEY, when both are set,
// win over the file.
func Open(infoFile string) (*Client, error) {
	info := Info{os.Getenv("PORTREEVE_URL"), os.Getenv("PORTREEVE_KEY")}
	if info.APIURL == "" || info.APIKey == "" {
		data, err := os.ReadFile(infoFile)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &Hinted{fmt.Errorf("no portreeve runs here: %s does not exist", infoFile), "start one with: portreeve dev"}
		}
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(data, &info); err != nil {
			return nil, fmt.Errorf("reading %s: %w", infoFile, err)
		}
	}
	return New(info)
}

// New returns a client for an address and a key.
func New(info Info) (*Client, error) {
	u, err := url.Parse(info.APIURL)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("API address %q is not a URL", info.APIURL)
	}
	transport := &http.Transport{DialContext: Dial, MaxIdleConns: 4, ResponseHeaderTimeout: 10 * time.Minute}
	return &Client{base: strings.TrimSuffix(info.APIURL, "/"), key: info.APIKey, http: &http.Client{
		Transport:     transport, // no proxy of the environment: the key is in each request
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Dial knows what few resolvers do: that every name under localhost is this machine (RFC 6761).
func Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(addr)
	if err == nil && strings.HasSuffix(host, ".localhost") {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	d := net.Dialer{Timeout: 10 * time.Second}
	return d.DialContext(ctx, network, addr)
}

// Do sends in as JSON (nil sends no body) and decodes the answer into out (nil drops it).
func (c *Client) Do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	resp, err := c.Send(ctx, method, path, "application/json", body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	if raw, ok := out.(*json.RawMessage); ok {
		*raw, err = io.ReadAll(resp.Body)
		return err
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("reading the answer to %s %s: %w", method, path, err)
	}
	return nil
}

// Send is Do with a body of any kind; the answer's body is the caller's to close. An answer of 400 or above is a *Problem.
func (c *Client) Send(ctx context.Context, method, path, contentType string, body io.Reader) (*http.Response, error) {
	return c.SendWith(ctx, method, path, http.Header{"Content-Type": {contentType}}, body)
}

// SendWith is Send with headers.
func (c *Client) SendWith(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		if body != nil || name != "Content-Type" {
			req.Header[name] = values
		}
	}
	req.Header.Set("Authorization", "ApiKey "+c.key)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(err)
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, problem(resp)
	}
	return resp, nil
}

func unreachable(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return &Hinted{fmt.Errorf("portreeve does not answer: %w", err), "is it still running? start it with: portreeve dev"}
	}
	return err
}
