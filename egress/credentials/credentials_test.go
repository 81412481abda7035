package credentials

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portreeve.dev/egress"
	"portreeve.dev/policies"
)

var (
	here  = netip.MustParseAddr("198.51.100.7")
	boxA  = egress.Binding{Sandbox: "sbx_a", Org: "org_a", Incarnation: 3}
	boxB  = egress.Binding{Sandbox: "sbx_b", Org: "org_a", Incarnation: 1}
	keyA  = Key{Version: 2, Secret: []byte(strings.Repeat("a", 32))}
	older = Key{Version: 1, Secret: []byte(strings.Repeat("o", 32))}
	keyC  = Key{Version: 2, Secret: []byte(strings.Repeat("c", 32))} // of another org
)

type world struct {
	*Gate
	now   time.Time
	boxes map[string]egress.Binding
	keys  []Key
	slept []time.Duration
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{now: time.Unix(1_800_000_000, 0), boxes: map[string]egress.Binding{"sbx_a": boxA, "sbx_b": boxB}, keys: []Key{older, keyA}}
	var err error
	w.Gate, err = NewGate(GateConfig{
		Lookup: func(id string) (egress.Binding, []Key, bool) {
			b, ok := w.boxes[id]
			return b, w.keys, ok
		},
		Now:   func() time.Time { return w.now },
		Sleep: func(_ context.Context, d time.Duration) { w.slept = append(w.slept, d) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) claims() Claims {
	return Claims{Sandbox: boxA.Sandbox, Incarnation: boxA.Incarnation, Door: HTTP, Source: here, Expires: w.now.Add(Lifetime)}
}

func mint(t testing.TB, k Key, c Claims) string {
	t.Helper()
	password, err := Mint(k, c)
	if err != nil {
		t.Fatal(err)
	}
	return password
}

func TestPasswordOpensOneDoor(t *testing.T) {
	type use struct {
		at       Door
		from     netip.Addr
		username string
		after    time.Duration
	}
	good := use{HTTP, here, "sbx_a", 0}
	for name, c := range map[string]struct {
		change func(*use, *Claims, *world)
		reason policies.Reason
	}{
		"as it was made for":                  {func(*use, *Claims, *world) {}, ""},
		"signed with the key before":          {func(_ *use, _ *Claims, w *world) { w.keys = []Key{older, {Version: 3, Secret: keyC.Secret}, keyA} }, ""},
		"a second before its end":             {func(u *use, _ *Claims, _ *world) { u.after = Lifetime - time.Second }, ""},
		"from the same address, IPv4 in IPv6": {func(u *use, _ *Claims, _ *world) { u.from = netip.MustParseAddr("::ffff:198.51.100.7") }, ""},
		"made while the clock was ahead":      {func(_ *use, c *Claims, w *world) { c.Expires = w.now.AddDate(1, 0, 0) }, policies.ReasonCredentialExpired},
		"by a clock a minute ahead":           {func(_ *use, c *Claims, _ *world) { c.Expires = c.Expires.Add(time.Minute) }, ""},
		"at its end":                          {func(u *use, _ *Claims, _ *world) { u.after = Lifetime }, policies.ReasonCredentialExpired},
		"at the other door":                   {func(u *use, _ *Claims, _ *world) { u.at = SOCKS }, policies.ReasonCredentialElse},
		"from the next address":               {func(u *use, _ *Claims, _ *world) { u.from = here.Next() }, policies.ReasonCredentialElse},
		"in the name of another sandbox":      {func(u *use, _ *Claims, _ *world) { u.username = "sbx_b" }, policies.ReasonCredential},
		"in the name of nobody":               {func(u *use, _ *Claims, _ *world) { u.username = "sbx_c" }, policies.ReasonCredential},
		"of an earlier incarnation":           {func(_ *use, c *Claims, _ *world) { c.Incarnation-- }, policies.ReasonCredential},
		"after its key is gone":               {func(_ *use, _ *Claims, w *world) { w.keys = []Key{older} }, policies.ReasonCredential},
		"after its sandbox is gone":           {func(_ *use, _ *Claims, w *world) { delete(w.boxes, "sbx_a") }, policies.ReasonCredential},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			u, claims := good, w.claims()
			c.change(&u, &claims, w)
			password := mint(t, keyA, claims)
			w.now = w.now.Add(u.after)
			a := w.Admit(t.Context(), u.at, u.from, u.username, password)
			if a.Reason != c.reason {
				t.Errorf("%q, want %q", a.Reason, c.reason)
			}
			if c.reason == "" && a.Binding != boxA {
				t.Errorf("it is taken for %+v", a.Binding)
			}
		})
	}
}

func TestForgedPasswordOpensNothing(t *testing.T) {
	w := newWorld(t)
	good := mint(t, keyA, w.claims())
	if a := w.Admit(t.Context(), HTTP, here, "sbx_a", good); a.Reason != "" {
		t.Fatalf("the real one: %q", a.Reason)
	}
	raw, err := encoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(raw) {
		forged := append([]byte(nil), raw...)
		forged[i/8] ^= 1 << (i % 8)
		if a := w.Admit(t.Context(), HTTP, here, "sbx_a", encoding.EncodeToString(forged)); a.Reason != policies.ReasonCredential {
			t.Fatalf("with bit %d changed: %q", i, a.Reason)
		}
	}
	for name, password := range map[string]string{
		"signed by another org": mint(t, keyC, w.claims()), "cut": good[:len(good)-1], "longer": good + "A",
		"in another alphabet": base64.StdEncoding.EncodeToString(raw), "empty": "", "spaced": " " + good,
		"signed with an empty key": func() string {
			b := append([]byte(nil), raw[:payloadSize]...)
			return encoding.EncodeToString(append(b, mac(Key{Secret: make([]byte, 32)}, b, "sbx_a", 3)...))
		}(),
	} {
		if a := w.Admit(t.Context(), HTTP, here, "sbx_a", password); a.Reason != policies.ReasonCredential {
			t.Errorf("%s: %q", name, a.Reason)
		}
	}
	w.keys = nil
	b := append([]byte(nil), raw[:payloadSize]...)
	blank := encoding.EncodeToString(append(b, mac(Key{Secret: make([]byte, 32)}, b, "sbx_a", 3)...))
	if a := w.Admit(t.Context(), HTTP, here, "sbx_a", blank); a.Reason != policies.ReasonCredential {
		t.Errorf("an org without keys takes the empty one: %q", a.Reason)
	}
}

func TestFailuresWait(t *testing.T) {
	w := newWorld(t)
	good := mint(t, keyA, w.claims())
	for range 9 {
		w.Admit(t.Context(), HTTP, here, "sbx_a", "wrong")
	}
	if got, want := fmt.Sprint(w.slept), "[100ms 200ms 400ms 800ms 1.6s 3.2s 5s 5s]"; got != want {
		t.Errorf("waited %v, want %v", got, want)
	}
	w.slept = nil
	if a := w.Admit(t.Context(), HTTP, here, "sbx_a", good); a.Reason != "" || len(w.slept) > 0 {
		t.Errorf("the right password after them: %q after %v", a.Reason, w.slept)
	}
	w.Admit(t.Context(), HTTP, here.Next(), "sbx_a", "wrong")
	w.Admit(t.Context(), HTTP, here, "", "")
	if len(w.slept) > 0 {
		t.Errorf("the first failure of another address, and a client that sent nothing: %v", w.slept)
	}
	w.now = w.now.Add(2 * time.Minute)
	w.Admit(t.Context(), HTTP, here, "sbx_a", "wrong")
	if len(w.slept) > 0 {
		t.Errorf("failures are never forgotten: %v", w.slept)
	}
}

func TestFailuresAreRecordedWithinABudget(t *testing.T) {
	w := newWorld(t)
	recorded := 0
	for range 10 * recordBurst {
		if w.Admit(t.Context(), HTTP, here, "sbx_a", "wrong").Record {
			recorded++
		}
	}
	if recorded != recordBurst {
		t.Errorf("%d of %d recorded", recorded, 10*recordBurst)
	}
	if !w.Admit(t.Context(), HTTP, here, "sbx_b", "wrong").Record {
		t.Error("one sandbox's failures used up another's")
	}
	if w.Admit(t.Context(), HTTP, here, "sbx_c", "wrong").Record {
		t.Error("a failure of nobody is to be recorded")
	}
	w.now = w.now.Add(time.Second)
	if !w.Admit(t.Context(), HTTP, here, "sbx_a", "wrong").Record {
		t.Error("no record a second later")
	}
}

func TestMintRefusesHalfClaims(t *testing.T) {
	w := newWorld(t)
	for name, change := range map[string]func(*Key, *Claims){
		"a short key": func(k *Key, _ *Claims) { k.Secret = k.Secret[:31] }, "no sandbox": func(_ *Key, c *Claims) { c.Sandbox = "" },
		"no door": func(_ *Key, c *Claims) { c.Door = "" }, "no source": func(_ *Key, c *Claims) { c.Source = netip.Addr{} },
		"no end": func(_ *Key, c *Claims) { c.Expires = time.Time{} },
	} {
		k, c := keyA, w.claims()
		change(&k, &c)
		if _, err := Mint(k, c); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func FuzzPassword(f *testing.F) {
	w := newWorld(f)
	f.Add(mint(f, keyA, w.claims()))
	f.Add("")
	f.Fuzz(func(t *testing.T, password string) {
		b, _, ok := decode(password)
		if ok && encoding.EncodeToString(b[:]) != password {
			t.Fatalf("%q has a second spelling", password)
		}
	})
}
