package api_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"portreeve.dev/gateway/api/apitest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const golden = "../../docs/api/openapi.json"

// TestOpenAPIIsTheGoldenFile keeps the published document and the code together.
func TestOpenAPIIsTheGoldenFile(t *testing.T) {
	w := apitest.New(t)
	var got bytes.Buffer
	if err := json.Indent(&got, w.API.OpenAPI(), "", "  "); err != nil {
		t.Fatal(err)
	}
	got.WriteByte('\n')
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Error("the API is not what docs/api/openapi.json says; look at the difference of: go test ./gateway/api -run OpenAPI -update")
	}
}

func TestOpenAPIIsServed(t *testing.T) {
	w := apitest.New(t)
	a := w.Send("GET", w.URL[:len(w.URL)-len("/api/v1")]+"/openapi.json", "", nil, nil).Want(200)
	if a.String("openapi") != "3.1.0" || !bytes.Equal(a.Body, w.API.OpenAPI()) {
		t.Errorf("%.200s", a.Body)
	}
	for _, path := range []string{"/docs", "/openapi.yaml", "/schemas/Problem", "/api/v1/docs", "/"} {
		if a := w.Send("GET", w.URL[:len(w.URL)-len("/api/v1")]+path, "", nil, nil); a.Status != 404 && a.Status != 401 {
			t.Errorf("%s: %d", path, a.Status)
		}
	}
}
