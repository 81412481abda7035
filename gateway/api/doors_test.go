package api_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/egress/credentials"
	"portreeve.dev/gateway/api"
	"portreeve.dev/gateway/api/apitest"
)

// withDoors has both doors on the network.
func withDoors(c *api.Config) {
	c.Doors = api.Doors{HTTP: "door.test:8444", SOCKS: "door.test:1085",
		Authority: func(context.Context) ([]byte, error) { return []byte("authority"), nil },
		Trust:     func(_ context.Context, org string) ([]byte, error) { return []byte("root of " + org), nil }}
}

func attachedBox(c *apitest.Client) string {
	return c.Do("POST", "/sandbox/create", object{"kind": "attached", "labels": object{"team": "a"}}).Want(201).String("sandbox_id")
}

// opens reports whether the edge would take a password, with the keys that the store has now.
func opens(t *testing.T, w *apitest.World, c *apitest.Client, box string, at credentials.Door, from, password string) bool {
	t.Helper()
	stored, err := w.Store.DoorKeys(t.Context(), c.Org)
	if err != nil {
		t.Fatal(err)
	}
	var keys []credentials.Key
	for _, k := range stored {
		secret, err := w.Keyring.Open(api.DoorKeyRecord(c.Org, k.Version), k.Sealed)
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, credentials.Key{Version: uint32(k.Version), Secret: secret})
	}
	gate, err := credentials.NewGate(credentials.GateConfig{Lookup: func(id string) (egress.Binding, []credentials.Key, bool) {
		return egress.Binding{Sandbox: box, Org: c.Org, Incarnation: 1}, keys, id == box
	}, Sleep: func(context.Context, time.Duration) {}})
	if err != nil {
		t.Fatal(err)
	}
	return gate.Admit(t.Context(), at, netip.MustParseAddr(from), box, password).Reason == ""
}

func TestDoorPasswordIsForOneDoor(t *testing.T) {
	w := apitest.New(t, withDoors)
	c := w.Org("one")
	box := attachedBox(c)
	a := c.Do("POST", "/sandbox/"+box+"/door", object{}).Want(201)
	password := a.String("password")
	if a.String("url") != "https://door.test:8444" || a.String("username") != box || a.String("source") != "127.0.0.1" || a.String("ca") != "authority" || a.String("trust") != "root of "+c.Org {
		t.Errorf("%s", a.Body)
	}
	if d := time.Until(when(t, a, "expires_at")); d > 600*time.Second || d < 590*time.Second {
		t.Errorf("the password outlives its sandbox, or not nearly: %v", d)
	}
	if !opens(t, w, c, box, credentials.HTTP, "127.0.0.1", password) {
		t.Error("it opens nothing")
	}
	if opens(t, w, c, box, credentials.SOCKS, "127.0.0.1", password) || opens(t, w, c, box, credentials.HTTP, "192.0.2.7", password) {
		t.Error("it opens the other door, or from elsewhere")
	}
	s := c.Do("POST", "/sandbox/"+box+"/door", object{"door": "socks", "source": "192.0.2.7"}).Want(201)
	if s.String("url") != "tls://door.test:1085" || !opens(t, w, c, box, credentials.SOCKS, "192.0.2.7", s.String("password")) {
		t.Errorf("%s", s.Body)
	}
	if got := c.Do("POST", "/sandbox/"+box+"/door", object{"door": "socket"}).Want(201); got.String("socket") != "/run/test/"+box+".sock" || got.At("password") != nil {
		t.Errorf("%s", got.Body)
	}
	keys, err := w.Store.DoorKeys(t.Context(), c.Org)
	if err != nil || len(keys) != 1 {
		t.Errorf("%d keys signed them, %v", len(keys), err)
	}
	if strings.Contains(w.Log.String(), password) {
		t.Error("the password is in the log")
	}
	log := c.Do("GET", "/audit", nil).Want(200)
	if !strings.Contains(string(log.Body), "door.open") || !strings.Contains(string(log.Body), "door_key.rotate") || strings.Contains(string(log.Body), password) {
		t.Errorf("%s", log.Body)
	}
}

func TestDoorIsForAttachedSandboxes(t *testing.T) {
	w := apitest.New(t, withDoors)
	c := w.Org("one")
	box := attachedBox(c)
	w.Org("two").Do("POST", "/sandbox/"+box+"/door", object{}).Refused(404, "sandbox_not_found")
	c.With([]string{"read"}).Do("POST", "/sandbox/"+box+"/door", object{}).Refused(403, "scope_missing")
	c.Do("POST", "/sandbox/"+c.Sandbox()+"/door", object{}).Refused(409, "own_sandbox")
	for _, source := range []string{"here", "0.0.0.0", "fe80::1%eth0", "192.0.2.0/24"} {
		c.Do("POST", "/sandbox/"+box+"/door", object{"source": source}).Refused(422, "invalid_request", "body.source")
	}
	c.Do("DELETE", "/sandbox/"+box, nil).Want(200)
	c.Do("POST", "/sandbox/"+box+"/door", object{}).Refused(409, "sandbox_not_running")
	if keys, err := w.Store.DoorKeys(t.Context(), c.Org); err != nil || len(keys) != 0 {
		t.Errorf("a refused password made %d keys, %v", len(keys), err)
	}
	shut := apitest.New(t).Org("one")
	shut.Do("POST", "/sandbox/"+attachedBox(shut)+"/door", object{}).Refused(409, "no_such_door")
}

func TestAttachedSandboxHasNoInside(t *testing.T) {
	w := apitest.New(t)
	c := w.Org("one")
	box := attachedBox(c)
	view := c.Do("GET", "/sandbox/"+box, nil).Want(200)
	if view.String("kind") != "attached" || view.String("status") != "running" || view.String("labels.team") != "a" || view.At("addr") != nil {
		t.Errorf("%s", view.Body)
	}
	at := "/sandbox/" + box
	c.Do("POST", at+"/execute", object{"command": []string{"true"}}).Refused(409, "attached_sandbox")
	c.Do("POST", at+"/pause", nil).Refused(409, "attached_sandbox")
	c.Do("POST", at+"/resume", nil).Refused(409, "attached_sandbox")
	c.Do("POST", at+"/tunnels", object{"port": 80}).Refused(409, "attached_sandbox")
	c.Do("GET", at+"/files?path=/workspace", nil).Refused(409, "attached_sandbox")
	c.Do("POST", at+"/extend", object{"additional_seconds": 60}).Want(200)
	for field, value := range map[string]any{"template": "tiny", "env": object{"A": "b"}, "workspace": object{}} {
		c.Do("POST", "/sandbox/create", object{"kind": "attached", field: value}).Refused(422, "invalid_request", "body."+field)
	}
	c.Do("POST", "/sandbox/create", object{"kind": "attached", "labels": object{"Team": "a"}}).Refused(422, "invalid_request", "body.labels")
	if c.Do("GET", "/sandbox/"+c.Sandbox(), nil).Want(200).String("kind") != "own" {
		t.Error("one of our own is of another kind")
	}
}
