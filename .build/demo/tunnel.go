package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"portreeve.dev/lab"
)

// A tunnel is the URL that a port of the sandbox was given.
type tunnel struct {
	ID    string `json:"id"`
	URL   string `json:"http_url"`
	Token string `json:"token"`
}

// open starts a web server in the sandbox and gives it a URL.
func (v *visit) open() (string, error) {
	const serve = "mkdir -p /workspace/www; echo hello from inside >/workspace/www/index.html; httpd -p 127.0.0.1:8000 -h /workspace/www"
	if r := v.product.CLI("sandbox", "exec", v.box, "--", "sh", "-c", serve); r.Code != 0 {
		return r.String(), errors.New("no server in the sandbox")
	}
	r := v.product.CLI("tunnel", "open", "8000", "--sandbox", v.box, "--output", "json")
	if err := json.Unmarshal([]byte(r.Stdout), &v.tunnel); r.Code != 0 || err != nil || v.tunnel.URL == "" {
		return r.String(), errors.New("no tunnel")
	}
	status, _, err := v.call("")
	if err != nil || status != http.StatusUnauthorized {
		return "", errors.Join(err, fmt.Errorf("without the token it answers %d", status))
	}
	status, body, err := v.call(v.tunnel.Token)
	if err != nil || status != http.StatusOK || !strings.Contains(body, "hello from inside") {
		return body, errors.Join(err, fmt.Errorf("with the token it answers %d", status))
	}
	return v.tunnel.URL + "/ answers 401 without the token, and with it: " + strings.TrimSpace(body), nil
}

// wake pauses the sandbox and calls it.
func (v *visit) wake() (string, error) {
	if r := v.product.CLI("sandbox", "pause", v.box); r.Code != 0 {
		return r.String(), errors.New("it was not paused")
	}
	if status, _, err := v.call(""); err != nil || status != http.StatusUnauthorized {
		return "", errors.Join(err, fmt.Errorf("without the token it answers %d", status))
	}
	if status, err := v.status(); err != nil || status != "paused" {
		return "", errors.Join(err, fmt.Errorf("after a call without the token it is %s", status))
	}
	if v.broken == "wake" {
		if r := v.product.CLI("tunnel", "close", v.tunnel.ID, "--sandbox", v.box); r.Code != 0 {
			return r.String(), errors.New("the tunnel was not closed")
		}
	}
	began := time.Now()
	status, body, err := v.call(v.tunnel.Token)
	if err != nil || status != http.StatusOK {
		return body, errors.Join(err, fmt.Errorf("it answers %d", status))
	}
	took := time.Since(began)
	// The store is told after the caller was answered.
	if err := lab.Await(5*time.Second, "sandbox that runs", func() bool {
		status, err := v.status()
		return err == nil && status == "running"
	}); err != nil {
		return "", err
	}
	return fmt.Sprintf("a caller without the token left it asleep; one with it was answered after %d ms", took.Milliseconds()), nil
}

// leave deletes the sandbox of these steps.
func (v *visit) leave() error {
	if r := v.product.CLI("sandbox", "delete", v.box); r.Code != 0 {
		return fmt.Errorf("the sandbox was not deleted: %v", r)
	}
	return nil
}

func (v *visit) status() (string, error) {
	var box struct {
		Status string `json:"status"`
	}
	r := v.product.CLI("sandbox", "inspect", v.box, "--output", "json")
	err := json.Unmarshal([]byte(r.Stdout), &box)
	return box.Status, err
}

// call asks the tunnel for its first page, from where the gateway is.
func (v *visit) call(token string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return v.lab.DialGateway(ctx, "tcp", v.product.Info.HTTPSAddr)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, v.tunnel.URL+"/", nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("X-Portreeve-Token", token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}
