package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

const key = "prk_test_canary"

func open(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	c, err := New(Info{s.URL + "/api/v1", key})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSendsTheKeyAndDecodes(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/sandboxes" || r.Header.Get("Authorization") != "ApiKey "+key {
			http.Error(w, "wrong", 400)
			return
		}
		io.WriteString(w, `{"n":7}`)
	})
	var out struct{ N int }
	if err := c.Do(t.Context(), "GET", "/sandboxes", nil, &out); err != nil || out.N != 7 {
		t.Fatalf("got %+v, %v", out, err)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("the redirect was followed, with %q", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	if err := c.Do(t.Context(), "GET", "/x", nil, nil); err == nil {
		t.Fatal("a redirect passed as an answer")
	}
}

func TestErrorsHoldNoKey(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(422)
		io.WriteString(w, `{"title":"Unprocessable","detail":"validation failed","errors":[{"location":"body.cpus","message":"is no number"}]}`)
	})
	err := c.Do(t.Context(), "POST", "/sandbox/create", map[string]string{}, nil)
	if err == nil || strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "cpus: is no number") {
		t.Fatalf("got %v", err)
	}
	gone, err := New(Info{"http://127.0.0.1:1/api/v1", key})
	if err != nil {
		t.Fatal(err)
	}
	if err := gone.Do(t.Context(), "GET", "/x", nil, nil); err == nil || strings.Contains(err.Error(), key) {
		t.Fatalf("got %v", err)
	}
}

func TestEventsKeepOrderAndIDs(t *testing.T) {
	c := open(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, ": heartbeat\n\nid: 1\ndata: {\"a\":1}\n\nid: 2\ndata: x\ndata: y\n\n")
	})
	var got []string
	err := c.Events(t.Context(), "GET", "/stream", nil, func(e Event) error {
		got = append(got, e.ID+"="+e.Data)
		return nil
	})
	if want := []string{`1={"a":1}`, "2=x\ny"}; err != nil || !slices.Equal(got, want) {
		t.Fatalf("got %q, %v", got, err)
	}
}
