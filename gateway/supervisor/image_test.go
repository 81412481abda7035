package supervisor

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"portreeve.dev/gateway/role"
)

func TestTerminalTellsWhatBecameOfBase(t *testing.T) {
	for state, want := range map[string]string{
		"ready":  `msg="image built" image=base`,
		"failed": `image=base err="no mirror"`,
	} {
		dir := t.TempDir()
		names := filepath.Join(dir, "images", "names")
		if err := os.MkdirAll(names, 0o755); err != nil {
			t.Fatal(err)
		}
		record := `{"name":"base","state":"` + state + `","error":"no mirror"}`
		if err := os.WriteFile(filepath.Join(names, "base.json"), []byte(record), 0o644); err != nil {
			t.Fatal(err)
		}
		var terminal bytes.Buffer
		s := &Supervisor{config: Config{StateDir: dir, Log: slog.New(slog.NewTextHandler(&terminal, nil))}}
		s.tellBase(t.Context())
		if terminal.Len() != 0 {
			t.Errorf("nothing is built, and it says %q", terminal.String())
		}
		s.status.Base = role.BaseBuilding
		s.tellBase(t.Context())
		if !strings.Contains(terminal.String(), want) {
			t.Errorf("%s: it says %q, want %q", state, terminal.String(), want)
		}
	}
}
