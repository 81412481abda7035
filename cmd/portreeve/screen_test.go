package main

import (
	"strings"
	"testing"

	"portreeve.dev/gateway/role"
	"portreeve.dev/gateway/supervisor"
)

func shown(s supervisor.Status) string {
	var out strings.Builder
	a := &app{out: &out, infoFile: "/state/info.json"}
	a.screen(s)
	return out.String()
}

func TestScreenShowsOnlyChecksThatWereMade(t *testing.T) {
	s := supervisor.Status{APIURL: "http://127.0.0.1:8080/api/v1", APIKey: testKey, SetupToken: testKey, EdgeNetns: "portreeve-abc", Base: role.BaseBuilding,
		Cages: map[string]role.Caged{supervisor.Edge: {LandlockABI: 6, Checked: []string{"no capabilities", "not dumpable"}}}}
	text := shown(s)
	for _, want := range []string{"http://127.0.0.1:8080/api/v1", "/state/info.json", "ok  edge netns portreeve-abc",
		"ok  edge is in its cage: Landlock ABI 6, 2 checks from inside held", "--  inward said nothing",
		"base is being built in the background", "portreeve --info /state/info.json run -- wget -qO- https://example.com/ ", "Ctrl-C stops everything."} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(text, testKey) {
		t.Error("it shows a secret")
	}
	s.Cages = map[string]role.Caged{supervisor.Edge: {}, supervisor.Inward: {LandlockABI: 4}}
	if text = shown(s); !strings.Contains(text, "--  edge: no Landlock") || !strings.Contains(text, "ok  inward is in its cage: Landlock ABI 4") {
		t.Errorf("without Landlock it says:\n%s", text)
	}
}

func TestScreenTellsHowFarTheImageIs(t *testing.T) {
	for base, want := range map[string]string{
		"":                            "  Images   tiny\n",
		role.BaseReady:                "  Images   base, tiny\n",
		"mmdebstrap is not installed": "  Images   tiny; base can't be built here: mmdebstrap is not installed\n",
		role.BaseBuilding:             "  Images   tiny; base is being built",
	} {
		if text := shown(supervisor.Status{Base: base}); !strings.Contains(text, want) {
			t.Errorf("base %q: want %q in\n%s", base, want, text)
		}
	}
}
