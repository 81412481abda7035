package e2e

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"portreeve.dev/lab"
)

// withBase starts a lab and a product whose image base is there already: the lab has no mirror to build it from. It is
// built outside and kept for the next time, as that takes about a minute. More packages make it another base.
func withBase(t *testing.T, more ...string) (*lab.Lab, *lab.Product) {
	t.Helper()
	store := baseStore(t, more...)
	l := lab.Start(t, lab.Options{})
	state := filepath.Join(l.Dir, "with-base")
	if err := os.Mkdir(state, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", store, filepath.Join(state, "images")).CombinedOutput(); err != nil {
		t.Fatalf("copying the images: %v: %s", err, out)
	}
	return l, l.StartProduct(t, lab.ProductOptions{State: state})
}

// baseStore returns an image store that holds base. Its name tells from which source it was built, and with what more.
func baseStore(t *testing.T, more ...string) string {
	t.Helper()
	root, err := lab.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	recipe, err := os.ReadFile(filepath.Join(root, "nodes", "images", "base.go"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(string(recipe) + strings.Join(more, " ")))
	dir := filepath.Join("/var/cache/portreeve-test", "base-"+hex.EncodeToString(sum[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	bin, err := lab.BinDir()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(bin, "portreeve-node"), append([]string{"build-base", dir}, more...)...).CombinedOutput(); err != nil {
		t.Fatalf("building base: %v: %s", err, out)
	}
	return dir
}

// TestBaseImage: what agents use is in the image, runs as the user, trusts the org's authority, and is refused quickly.
func TestBaseImage(t *testing.T) {
	l, p := withBase(t)
	ceiling(t, p, inspect("api", "api.test"))
	b := sandbox(t, p, "template", "base", "memory", "1Gi")
	for _, c := range []struct{ name, script, want string }{
		{"who", "id -u; pwd; touch /workspace/x /tmp/x && echo wrote", "1001\n/workspace\nwrote"},
		{"the root is read only", "touch /etc/x 2>/dev/null || echo refused", "refused"},
		{"python", "python3 -c 'import sys, ssl, sqlite3; print(sys.version_info.major)'", "3"},
		{"node", "node -p 1+1", "2"},
		{"git", "git init -q /workspace/r && git -C /workspace/r status --short && echo ok", "ok"},
		{"curl through opened TLS", "curl -sS -o /dev/null -w '%{http_code}' https://api.test/a", "200"},
		{"wget through opened TLS", "wget -qO /dev/null https://api.test/w; echo $?", "0"},
		{"python through opened TLS", `python3 -c 'import urllib.request as u; print(u.urlopen("https://api.test/b").status)'`, "200"},
		{"node through opened TLS", `node -e 'fetch("https://api.test/c").then(r => console.log(r.status))'`, "200"},
		{"git through opened TLS", "git ls-remote https://api.test/d 2>&1 | grep -ciE 'certificate|ssl'", "0"},
		{"curl to a denied host", "curl -sS -m 20 https://evil.test/ 2>/dev/null; echo $?", "6"},
		{"curl to a denied address", "curl -sS -m 20 https://" + l.Evil.Addr.String() + "/ 2>/dev/null; echo $?", "35"},
	} {
		r := b.exec("bash", "-c", c.script)
		if got := strings.TrimSpace(r.Stdout); got != c.want {
			t.Errorf("%s: %q, want %q; %+v", c.name, got, c.want, r)
		}
	}
	if r := p.CLI("run", "--", "bash", "-c", "echo $BASH_VERSION"); r.Code != 0 || strings.TrimSpace(r.Stdout) == "" {
		t.Errorf("without --template: %v", r)
	}
	quiet(t, l, "after all")
}
