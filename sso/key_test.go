package sso_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"portreeve.dev/sso"
)

func newKey(t *testing.T) (string, sso.Key) {
	t.Helper()
	secret, key, err := sso.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	return secret.Reveal(), key
}

func TestOnlyTheWholeKeyMatches(t *testing.T) {
	text, key := newKey(t)
	other, otherKey := newKey(t)
	if !key.Matches(key.Hash[:]) {
		t.Error("a key does not match its own hash")
	}
	parsed, err := sso.ParseKey(text)
	if err != nil || parsed != key {
		t.Errorf("the text of a key reads as another: %v", err)
	}
	if key.Matches(otherKey.Hash[:]) {
		t.Error("a key matches another's hash")
	}
	for name, stored := range map[string][]byte{"nothing": nil, "an empty hash": {}, "half a hash": key.Hash[:16], "a longer one": append(key.Hash[:], 0)} {
		if key.Matches(stored) {
			t.Errorf("a key matches %s", name)
		}
	}
	// The id of one with the secret of another, and the right sum: a key of the right form that nobody has.
	mixed := text[:37] + other[37:]
	if k, err := sso.ParseKey(mixed); err == nil && k.Matches(key.Hash[:]) {
		t.Error("half a key matches")
	}
}

func TestKeyForms(t *testing.T) {
	text, key := newKey(t)
	if !strings.HasPrefix(text, "prk_") || !strings.HasPrefix(text, key.Prefix+"_") || !strings.HasPrefix(key.ID, "key_") {
		t.Errorf("form: prefix %s, id %s", key.Prefix, key.ID)
	}
	flipped := []byte(text)
	flipped[50] ^= 1
	for name, bad := range map[string]string{
		"nothing": "", "a word": "prk", "one byte short": text[:len(text)-1], "one byte more": text + "a", "a typing error": string(flipped),
		"another prefix": "prx" + text[3:], "upper case": strings.ToUpper(text), "a JWT": "eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.",
	} {
		if _, err := sso.ParseKey(bad); err == nil {
			t.Errorf("%s is read as a key", name)
		} else if bad != "" && strings.Contains(err.Error(), bad) && len(bad) > 4 {
			t.Errorf("%s: the error repeats it", name)
		}
	}
}

func TestSecretNeverPrints(t *testing.T) {
	const canary = "canary-value-0123456789"
	s := sso.NewSecret(canary)
	holder := struct{ S sso.Secret }{s}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%p"} {
		fmt.Fprintf(&out, verb+verb+verb, s, &s, holder)
	}
	for _, log := range []*slog.Logger{slog.New(slog.NewTextHandler(&out, nil)), slog.New(slog.NewJSONHandler(&out, nil))} {
		log.Info("x", "secret", s, "pointer", &s, "holder", holder)
	}
	text, _ := json.Marshal(map[string]any{"s": s, "p": &s, "h": holder})
	out.Write(text)
	byText, _ := s.MarshalText()
	out.Write(byText)
	fmt.Fprint(&out, s, fmt.Errorf("with %w and %v", fmt.Errorf("x"), s))
	for _, form := range []string{canary, fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary), strings.Trim(fmt.Sprint([]byte(canary)), "[]")} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the value is in %q", out.String())
		}
	}
	if s.Reveal() != canary {
		t.Error("Reveal does not return the text")
	}
}

func TestZeroPrincipalIsNobody(t *testing.T) {
	var nobody sso.Principal
	nobody.Scopes, nobody.Policies = sso.AllScopes(), []string{sso.AnyPolicy}
	if nobody.Valid() || nobody.Has(sso.ScopeRead) || nobody.MayGive("web") || nobody.String() != "nobody" {
		t.Error("a principal without kind, id and org is somebody")
	}
	p := sso.Principal{Kind: sso.KindKey, ID: "key_1", Org: "org_1", Scopes: []sso.Scope{sso.ScopeRead}, Policies: []string{"web"}}
	if !p.Valid() || !p.Has(sso.ScopeRead) || !p.MayGive("web") || p.String() != "key:key_1" {
		t.Error("a whole principal is nobody")
	}
	if p.Has(sso.ScopeWrite) || p.Has("") || p.MayGive("db") || p.MayGive("") {
		t.Error("a principal has what it was not given")
	}
	for _, broken := range []sso.Principal{{Kind: sso.KindKey, ID: "key_1"}, {Kind: sso.KindKey, Org: "org_1"}, {ID: "key_1", Org: "org_1"}, {Kind: "root", ID: "x", Org: "y"}} {
		broken.Scopes = sso.AllScopes()
		if broken.Valid() || broken.Has(sso.ScopeRead) {
			t.Errorf("%+v is somebody", broken)
		}
	}
	if s := sso.System("node", "org_1"); !s.Valid() || s.Has(sso.ScopeRead) {
		t.Error("a part of ours is nobody, or holds scopes")
	}
}

func TestSandboxHoldsNoScope(t *testing.T) {
	p := sso.Sandbox("sbx_1", "org_1")
	p.Scopes = sso.AllScopes()
	if !p.Valid() || p.String() != "sandbox:sbx_1" {
		t.Errorf("a sandbox is nobody: %s", p)
	}
	key := p
	key.Kind = sso.KindKey
	for _, s := range sso.AllScopes() {
		if p.Has(s) || !key.Has(s) {
			t.Errorf("scope %s: a sandbox has it: %v, a key: %v", s, p.Has(s), key.Has(s))
		}
	}
}

// TestPlatformIsAboveTheOrgs: what an org's owner may do does not hold what the platform may, and its scope has a name like the others.
func TestPlatformIsAboveTheOrgs(t *testing.T) {
	owner := sso.Principal{Kind: sso.KindKey, ID: "key_1", Org: "org_1", Scopes: sso.Scopes(), Policies: []string{sso.AnyPolicy}}
	if owner.Has(sso.ScopePlatform) || !owner.Has(sso.ScopeAdmin) {
		t.Errorf("an org's owner holds %v", owner.Scopes)
	}
	installer := owner
	installer.Scopes = sso.AllScopes()
	for _, s := range sso.AllScopes() {
		if got, ok := sso.ParseScope(string(s)); !ok || got != s || !installer.Has(s) {
			t.Errorf("scope %s: read as %q, %v; the installer has it: %v", s, got, ok, installer.Has(s))
		}
	}
}

func TestTwoCredentialsAreRefused(t *testing.T) {
	header := func(pairs ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			h.Add(pairs[i], pairs[i+1])
		}
		return h
	}
	for name, h := range map[string]http.Header{
		"ApiKey": header("Authorization", "ApiKey k"), "any case": header("Authorization", "apikey k"),
		"Bearer": header("Authorization", "Bearer k"), "X-API-Key": header("X-API-Key", "k"),
	} {
		if s, err := sso.FromHeader(h); err != nil || s.Reveal() != "k" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		h    http.Header
		want error
	}{
		"none":             {header(), sso.ErrNoCredential},
		"Basic":            {header("Authorization", "Basic azpr"), sso.ErrScheme},
		"both headers":     {header("Authorization", "ApiKey k", "X-API-Key", "k"), sso.ErrTwoCredentials},
		"Authorization ×2": {header("Authorization", "ApiKey k", "Authorization", "ApiKey other"), sso.ErrTwoCredentials},
		"X-API-Key ×2":     {header("X-API-Key", "k", "X-API-Key", "other"), sso.ErrTwoCredentials},
	} {
		if _, err := sso.FromHeader(c.h); err != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseKey(f *testing.F) {
	secret, _, _ := sso.NewKey()
	f.Add(secret.Reveal())
	f.Add("prk_")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := sso.ParseKey(text)
		if err != nil {
			return
		}
		// One key has one text: whatever is read has the form that NewKey writes.
		if !strings.HasPrefix(text, k.Prefix+"_") || text != strings.ToLower(text) || len(text) != len(secret.Reveal()) {
			t.Errorf("%q is read as a key", text)
		}
	})
}
