package secrets

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
)

func carrying(t testing.TB) *http.Request {
	t.Helper()
	r, err := http.NewRequest("GET", "https://api.test/a?access_token=canary-1&page=2&key=can%61ry-1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer canary-1")
	r.Header.Set("X-Api-Key", "canary-2")
	r.Header.Set("Accept", "text/html")
	r.URL.User = url.UserPassword("me", "canary-3")
	r.Trailer = http.Header{"X-Auth-Token": nil}
	return r
}

func TestPrintsKnowACredentialAgainAndHideIt(t *testing.T) {
	one, two := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	prints := Prints(carrying(t), one)
	var places []Found
	at := map[Found]string{}
	for _, p := range prints {
		places, at[p.Place] = append(places, p.Place), p.Hash
	}
	if want := Carriers(carrying(t)); !slices.Equal(places, want) {
		t.Errorf("places %v, the carriers are %v", places, want)
	}
	if at["header:authorization"] == "" || at["header:authorization"] != at["query:access_token"] || at["query:key"] != at["query:access_token"] {
		t.Errorf("one token in three places: %v", at)
	}
	if at["header:x-api-key"] == at["header:authorization"] {
		t.Error("two credentials with one hash")
	}
	if text := fmt.Sprintf("%+v", prints); strings.Contains(text, "canary") {
		t.Errorf("a value: %s", text)
	}
	for i, p := range Prints(carrying(t), two) {
		if p.Hash != "" && p.Hash == prints[i].Hash {
			t.Errorf("%s has the same hash under another org's key", p.Place)
		}
	}
	for _, p := range Prints(carrying(t), nil) {
		if p.Hash != "" {
			t.Errorf("%s has a hash without a key, which anybody could make", p.Place)
		}
	}
}

// BenchmarkPrints watches what an ordinary request, which carries nothing, pays on a granted host.
func BenchmarkPrints(b *testing.B) {
	r, _ := http.NewRequest("GET", "https://api.test/a?page=2", nil)
	r.Header.Set("Accept", "text/html")
	r.Header.Set("User-Agent", "curl/8")
	key := bytes.Repeat([]byte{1}, 32)
	b.ReportAllocs()
	for b.Loop() {
		if len(Prints(r, key)) > 0 {
			b.Fatal("found one")
		}
	}
}
