package release

import (
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	if v := Version(); !strings.HasPrefix(v, "devel") {
		t.Errorf("built by go test it calls itself %q", v)
	}
	number = "1.2.3"
	defer func() { number = "" }()
	if v := Version(); v != "1.2.3" {
		t.Errorf("the release calls itself %q", v)
	}
}
