package config

import (
	"os"
	"reflect"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestPageOfConfigurationIsTrue: what docs/operations/configure.md shows is read, and says the defaults where it says anything
// that is one.
func TestPageOfConfigurationIsTrue(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations/configure.md")
	if err != nil {
		t.Fatal(err)
	}
	block := yamlBlock.FindSubmatch(page)
	if block == nil {
		t.Fatal("the page shows no file")
	}
	got, err := Parse(block[1])
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keysOf(reflect.TypeFor[Config]()) {
		if !regexp.MustCompile(`(?m)^[ -]*` + key + `:`).Match(block[1]) {
			t.Errorf("the page leaves out %s", key)
		}
	}
	// These have no default to show, only a form.
	got.Egress.UpstreamDNS, got.Egress.UpstreamCA, got.Egress.FloorExempt, got.Egress.Doors = nil, nil, nil, Doors{}
	got.Egress.Upstream, got.Egress.Sources = want.Egress.Upstream, nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the page shows other values than the defaults (-default +page):\n%s", diff)
	}
}

// keysOf returns the names of all keys, those inside of others too.
func keysOf(t reflect.Type) (keys []string) {
	switch t.Kind() {
	case reflect.Slice, reflect.Pointer:
		return keysOf(t.Elem())
	case reflect.Struct:
	default:
		return nil
	}
	for field := range t.Fields() {
		keys = append(append(keys, field.Tag.Get("yaml")), keysOf(field.Type)...)
	}
	return keys
}
