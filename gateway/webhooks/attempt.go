package webhooks

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"portreeve.dev/policies/hostname"
)

// Why there was no answer.
const (
	failURL     = "url_invalid"
	failSecret  = "secret_unavailable"
	failDial    = "not_reached"
	failTLS     = "tls_failed"
	failTimeout = "timeout"
	failAnswer  = "answer_invalid"
)

// A Target is the host and port of an endpoint.
type Target struct {
	Host string // in normal form
	Port uint16
}

// ParseURL reads an endpoint's URL. The error names what is wrong with it and none of its parts.
func ParseURL(text string) (*url.URL, Target, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return nil, Target{}, errors.New("is no URL")
	case u.Scheme != "https":
		return nil, Target{}, errors.New("must begin with https://")
	case u.User != nil:
		return nil, Target{}, errors.New("must hold no user and no password")
	}
	if net.ParseIP(strings.Trim(u.Hostname(), "[]")) != nil {
		return nil, Target{}, errors.New("must name a host, not an address")
	}
	host, err := hostname.Normalize(u.Hostname())
	if err != nil {
		return nil, Target{}, errors.New("has a host that is no name")
	}
	t := Target{Host: host, Port: 443}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return nil, Target{}, errors.New("has a port outside 1 to 65535")
		}
		t.Port = uint16(n)
	}
	u.Fragment, u.RawFragment = "", ""
	return u, t, nil
}

// errDial marks what came out of Config.Dial.
type errDial struct{ error }

func (e errDial) Unwrap() error { return e.error }

// Attempt makes one try, now. It takes no longer than the endpoint's time, at most 10 s.
func (s *Sender) Attempt(ctx context.Context, d Delivery) Outcome {
	limit := d.Endpoint.Timeout
	if limit <= 0 || limit > longest {
		limit = longest
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	u, target, err := ParseURL(d.Endpoint.URL)
	if err != nil {
		return Outcome{Error: failURL}
	}
	secrets, err := s.cfg.Secrets(d.Endpoint, d.Sealed)
	if err != nil || len(secrets) == 0 {
		s.cfg.Log.Error("the secret of a webhook can't be opened", "webhook", d.Endpoint.ID, "err", err)
		return Outcome{Error: failSecret}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(d.Body))
	if err != nil {
		return Outcome{Error: failURL}
	}
	signature, timestamp := sign(secrets, d.ID, s.cfg.Now(), d.Body)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "Portreeve-Webhooks/1")
	r.Header.Set("Webhook-Id", d.ID)
	r.Header.Set("Webhook-Timestamp", timestamp)
	r.Header.Set("Webhook-Signature", signature)
	transport := s.transport(d.Org, target)
	defer transport.CloseIdleConnections()
	resp, err := transport.RoundTrip(r) // no client: nothing follows a redirect, keeps a cookie or asks an environment
	if err != nil {
		s.cfg.Log.Debug("a webhook was not delivered", "webhook", d.Endpoint.ID, "err", err)
		return Outcome{Error: failure(ctx, err)}
	}
	_, _ = io.CopyN(io.Discard, resp.Body, maxBody)
	resp.Body.Close()
	return Outcome{Delivered: resp.StatusCode >= 200 && resp.StatusCode < 300, Status: resp.StatusCode}
}

// transport connects to the one target, whatever address it is asked for, and once.
func (s *Sender) transport(org string, to Target) *http.Transport {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			c, err := s.cfg.Dial(ctx, org, to.Host, to.Port)
			if err != nil {
				return nil, errDial{err}
			}
			return c, nil
		},
		TLSClientConfig:        &tls.Config{ServerName: to.Host, RootCAs: s.cfg.Roots, MinVersion: tls.VersionTLS12, Time: s.cfg.Now},
		Protocols:              &protocols,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		TLSHandshakeTimeout:    longest,
		ResponseHeaderTimeout:  longest,
		MaxResponseHeaderBytes: maxHead,
	}
}

func failure(ctx context.Context, err error) string {
	var dial errDial
	var certificate *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return failTimeout
	case errors.As(err, &dial):
		return failDial
	case errors.As(err, &certificate), errors.As(err, &unknown), errors.As(err, &record), strings.Contains(err.Error(), "tls: "):
		return failTLS
	}
	return failAnswer
}

// again is when the next try is, zero if there is none.
func again(e Endpoint, attempt int, now time.Time) time.Time {
	if attempt > e.Retries {
		return time.Time{}
	}
	wait := e.Delay
	for range attempt - 1 {
		if wait *= 4; wait >= maxDelay {
			wait = maxDelay
			break
		}
	}
	return now.Add(min(wait, maxDelay))
}
