package client

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"portreeve.dev/egress/decisions"
)

// TestDecisionIsTheRecordedOne: each field that the commands read is one that is recorded, under the same name.
func TestDecisionIsTheRecordedOne(t *testing.T) {
	recorded := decisions.Decision{ID: "dec_1", Time: time.Unix(1, 0).UTC(), Org: "org_1", Sandbox: "sbx_1", Incarnation: 1, Layer: "http",
		Level: "http", Verdict: "deny", Reason: "no_rule", Rule: "r", RuleLayer: "ceiling", Revision: 2, Version: 3, Host: "a.test",
		Addr: "192.0.2.1", Port: 443, Protocol: "https", Method: "GET", Path: "/x", Count: 3, Until: time.Unix(2, 0).UTC(), Closed: true,
		Status: 200, BytesOut: 4, BytesIn: 5, DurationMS: 6, Error: "parse_error", Guidance: "ask"}
	data, err := json.Marshal(recorded)
	if err != nil {
		t.Fatal(err)
	}
	var read Decision
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	for i := range reflect.TypeOf(read).NumField() {
		field := reflect.TypeOf(read).Field(i)
		if want := reflect.ValueOf(recorded).FieldByName(field.Name); !want.IsValid() || !reflect.ValueOf(read).Field(i).Equal(want) {
			t.Errorf("%s is read as %v, recorded was %v", field.Name, reflect.ValueOf(read).Field(i), want)
		}
	}
}
