package webhooks

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The events there are.
const (
	RequestCreated = "egress.request.created" // a sandbox asked for access
	RequestDecided = "egress.request.decided" // somebody approved or denied it
	Denied         = "egress.denied"          // what was denied in the last minute, in sum
	Test           = "webhook.test"           // asked for by POST /webhooks/{id}/test
)

// Every stands for all events in an endpoint's list.
const Every = "*"

// Events lists those that an endpoint may name.
func Events() []string { return []string{RequestCreated, RequestDecided, Denied} }

// An Endpoint is where an org wants to be told.
type Endpoint struct {
	ID      string // whk_<uuidv7>
	Org     string
	URL     string // https
	Events  []string
	Retries int           // after the first try
	Delay   time.Duration // before the second try; four times as long before each further one, up to an hour
	Timeout time.Duration // of a try
}

// Wants reports whether the endpoint is told of the event.
func (e *Endpoint) Wants(event string) bool {
	return slices.Contains(e.Events, Every) || slices.Contains(e.Events, event)
}

// A Delivery is one event on its way to one endpoint.
type Delivery struct {
	ID       string // whd_<uuidv7>; the webhook-id of every try
	Org      string
	Endpoint Endpoint
	Sealed   []byte // the endpoint's secrets, as the store has them
	Event    string
	Body     string
	Attempt  int // the first is 1
}

// An Outcome is how a try ended.
type Outcome struct {
	Delivered bool   `json:"delivered"`
	Status    int    `json:"response_status,omitempty"`
	Error     string `json:"error,omitempty"` // a word from a closed list; empty if there was an answer
}

// Body writes an event as it is sent.
func Body(event string, at time.Time, data any) ([]byte, error) {
	return json.Marshal(struct {
		Type      string    `json:"type"`
		Timestamp time.Time `json:"timestamp"`
		Data      any       `json:"data"`
	}{event, at.UTC(), data})
}

// secretPrefix begins a secret as it is shown.
const secretPrefix = "whsec_"

// NewSecret makes a secret, as it is shown.
func NewSecret() string {
	var b [32]byte
	rand.Read(b[:])
	return secretPrefix + base64.StdEncoding.EncodeToString(b[:])
}

// ParseSecret reads a secret as it is shown: 24 to 64 bytes.
func ParseSecret(text string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, secretPrefix))
	if err != nil || !strings.HasPrefix(text, secretPrefix) || len(b) < 24 || len(b) > 64 {
		return nil, errors.New("a webhook's secret is whsec_ and the base64 of 24 to 64 bytes")
	}
	return b, nil
}

// sign makes the value of webhook-signature: a signature for each secret that is active.
func sign(secrets [][]byte, id string, at time.Time, body string) (signature, timestamp string) {
	timestamp = strconv.FormatInt(at.Unix(), 10)
	var all []string
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(id + "." + timestamp + "." + body))
		all = append(all, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(all, " "), timestamp
}
