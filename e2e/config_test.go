package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// TestWrongConfigurationRefusesToStart: what can't be meant is refused in one line that says how to mend it, and starts nothing.
func TestWrongConfigurationRefusesToStart(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, lab.Options{})
	before := look(t, l)
	for _, c := range []struct{ name, config, want string }{
		{"an unknown key", "tunels: {}\n", `"tunnels"`},
		{"an unknown key further down", "limits: {sandbxes: 3}\n", `"sandboxes"`},
		{"an exemption of link-local addresses", "  floor_exempt: [{cidr: 169.254.0.0/16, ports: [80]}]\n", "169.254.0.0/16"},
		{"an exemption of everything", "  floor_exempt: [{cidr: 0.0.0.0/0}]\n", "0.0.0.0/0"},
		{"an exemption of loopback in IPv6", "  floor_exempt: [{cidr: '::ffff:127.0.0.0/104'}]\n", "floor_exempt"},
		{"an exemption of the sandboxes' range", "  floor_exempt: [{cidr: 10.0.0.0/8}]\n", "10.0.0.0/8"},
		{"an exemption that is no range", "  floor_exempt: [{cidr: lan}]\n", "floor_exempt"},
		{"an exemption of port 0", "  floor_exempt: [{cidr: 192.168.7.0/24, ports: [0]}]\n", "floor_exempt"},
		{"a resolver that is no address", "  upstream_dns: [dns.example.com]\n", "upstream_dns"},
		{"a CA file that is not there", "  upstream_ca: [/nowhere.pem]\n", "/nowhere.pem"},
		{"a limit below nothing", "limits: {sandboxes: -1}\n", "limits.sandboxes"},
		{"something that is no YAML", "limits: [\n", "line"},
	} {
		config := c.config
		if strings.HasPrefix(config, "  ") {
			config = "egress:\n" + config
		}
		said, code := refused(t, l, config, "--state", filepath.Join(l.Dir, "refused"))
		if code != 1 || !strings.Contains(said, c.want) || !strings.Contains(said, "portreeve: error: ") {
			t.Errorf("%s: exit %d, want 1 and %q:\n%s", c.name, code, c.want, said)
		}
	}
	if err := lab.Left(before, look(t, l)); err != nil {
		t.Error(err)
	}
	// The twin: an exemption that overlaps nothing of the kind.
	p, err := l.NewProduct(lab.ProductOptions{NoExemption: true, Config: "  floor_exempt: [{cidr: 192.168.7.0/24, ports: [443]}]\n" + small})
	if err != nil {
		t.Fatal(err)
	}
	// Beside it there is no room for a second one, on the same state or the same port.
	if said, code := refused(t, l, small, "--state", p.State, "--http", "127.0.0.1:9080", "--https", "127.0.0.1:9443"); code != 1 || !strings.Contains(said, "is in use by another portreeve") {
		t.Errorf("a second one on the same state: exit %d:\n%s", code, said)
	}
	if said, code := refused(t, l, small, "--state", filepath.Join(l.Dir, "second")); code != 1 || !strings.Contains(said, "--http") && !strings.Contains(said, "--https") {
		t.Errorf("a second one on the same ports: exit %d:\n%s", code, said)
	}
	if answer, err := p.API("GET", "/sandboxes", nil); err != nil || answer.Status != 200 {
		t.Errorf("the first one, after: %v %v", answer, err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if err := lab.Left(before, look(t, l)); err != nil {
		t.Error(err)
	}
}

// refused runs dev, which should end by itself, and returns what it said and its status.
func refused(t *testing.T, l *lab.Lab, config string, args ...string) (string, int) {
	t.Helper()
	file := filepath.Join(l.Dir, "refused.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd, err := l.Command(ctx, append([]string{"dev", "--config", file, "--info", filepath.Join(l.Dir, "refused.json")}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := cmd.CombinedOutput()
	return string(out), cmd.ProcessState.ExitCode()
}
