package policies

import (
	"errors"
	"testing"

	"portreeve.dev/policies/pathmatch"
)

func TestAskIsAboutOneRequest(t *testing.T) {
	r := Request{Stage: StageConnect, Host: "a.test", Port: 443, Protocol: HTTPS}
	if err := r.Ask("", ""); err != nil || r.Stage != StageRequest || r.Method != "GET" || r.Path != "/" {
		t.Errorf("nothing said: %+v, %v", r, err)
	}
	if err := r.Ask("POST", "/a/../%62"); err != nil || r.Method != "POST" || r.Path != "/b" {
		t.Errorf("both said: %+v, %v", r, err)
	}
	before := r
	if err := r.Ask("PUT", "/a//b"); !errors.Is(err, pathmatch.ErrAmbiguous) || r != before {
		t.Errorf("an ambiguous path: %+v, %v", r, err)
	}
	before.Protocol = TCP
	if err := before.Ask("GET", "/"); !errors.Is(err, ErrNoInside) {
		t.Errorf("of tcp: %v", err)
	}
}
