package lab

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// standIn is a product made of a shell script: it is ready when it says so, and ends when it is asked to.
const standIn = `#!/bin/sh
while [ "$#" -gt 0 ]; do [ "$1" = --info ] && info=$2; shift; done
trap 'exit 0' TERM
echo ready
printf '{"api_url":"http://127.0.0.1:1/api/v1","api_key":"k","edge_netns":"none"}' >"$info.tmp"
mv "$info.tmp" "$info"
while :; do sleep 0.1; done
`

func standInBin(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "portreeve"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PORTREEVE_BIN", dir)
}

func TestProductStartsAndStops(t *testing.T) {
	standInBin(t, standIn)
	l := Start(t, Options{})
	before, err := l.Look()
	if err != nil {
		t.Fatal(err)
	}
	p := l.StartProduct(t, ProductOptions{})
	if p.Info.APIKey != "k" {
		t.Errorf("the info file says %+v", p.Info)
	}
	if pid, err := p.PID("supervisor"); err != nil || syscall.Kill(pid, 0) != nil {
		t.Errorf("the supervisor is %d, %v", pid, err)
	}
	if _, err := p.PID("edge"); err == nil {
		t.Error("a stand-in has no edge")
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if log := p.Log(1); log != "ready" {
		t.Errorf("its log ends in %q", log)
	}
	after, err := l.Look()
	if err != nil {
		t.Fatal(err)
	}
	if err := Left(before, after); err != nil {
		t.Error(err)
	}
}

func TestProductThatEndsEarlyIsAnError(t *testing.T) {
	standInBin(t, "#!/bin/sh\necho portreeve: error: no luck >&2\nexit 3\n")
	l := Start(t, Options{})
	p, err := l.NewProduct(ProductOptions{Ready: 5 * time.Second})
	if err == nil || !strings.Contains(err.Error(), "no luck") {
		t.Errorf("got %v, want what it printed", err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("stopping what has ended: %v", err)
	}
}

func TestConfigurationOpensTheLabOnly(t *testing.T) {
	l := Start(t, Options{})
	open, shut := l.config(ProductOptions{}), l.config(ProductOptions{NoExemption: true})
	if !strings.Contains(open, "203.0.113.0/24") || strings.Contains(shut, "203.0.113.0/24") {
		t.Errorf("with exemption:\n%s\nwithout:\n%s", open, shut)
	}
}

func TestLookSeesWhatIsLeft(t *testing.T) {
	l := Start(t, Options{})
	before, err := l.Look()
	if err != nil {
		t.Fatal(err)
	}
	other, err := newNamespace("portreeve-" + instanceOf(l.Dir+"/of/another/lab"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.remove()
	if after, err := l.Look(); err != nil || Left(before, after) != nil {
		t.Errorf("what is another lab's: %v, %v", Left(before, after), err)
	}
	l.states = append(l.states, l.Dir+"/state")
	ns, err := newNamespace("portreeve-" + instanceOf(l.Dir+"/state"))
	if err != nil {
		t.Fatal(err)
	}
	defer ns.remove()
	after, err := l.Look()
	if err != nil {
		t.Fatal(err)
	}
	if err := Left(before, after); err == nil || !strings.Contains(err.Error(), ns.Name) {
		t.Errorf("a namespace was left, but the look says %v", err)
	}
}

func TestInfoHasTheNamesThatScriptsRelyOn(t *testing.T) {
	data, err := json.Marshal(Info{PIDs: map[string]int{"edge": 1}})
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"api_url", "api_key", "console_url", "tunnel_domain", "https_addr", "ca_file", "pids", "edge_netns", "runsc", "runsc_root", "state"} {
		if !strings.Contains(string(data), `"`+key+`"`) {
			t.Errorf("no %s", key)
		}
	}
}
