package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// TestFullStoreLosesNothing gives the store a small disk and fills it: what is decided meanwhile waits at the edge, and a change
// is refused whole.
func TestFullStoreLosesNothing(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	r := startRecording(t, l, p)
	r.allowed("at first")
	dir := filepath.Join(p.State, "control")
	storeOnSmallDisk(t, p, dir)
	r.background(fmt.Sprintf("n=0; while [ ! -e /tmp/enough ]; do n=$((n+1)); /workspace/hostile http %s:80 plain.test /f/$n; done", r.addr))
	r.flowing("on a small disk")
	ballast := filepath.Join(seen(t, p, dir), "ballast")
	change := map[string]any{"rules": []any{allow("clear", "plain.test", "ports", []int{80}, "protocols", []string{"http"})}}
	// The log that the database writes first has some room of its own left: it takes a few changes to fill.
	var answer lab.Answer
	var err error
	if err := lab.Await(30*time.Second, "refused change", func() bool {
		fillUp(t, ballast)
		answer, err = p.API("PUT", "/policies/full", change)
		return err == nil && answer.Status >= 400
	}); err != nil {
		t.Fatalf("%v: %v", err, answer)
	}
	if answer.Status != 507 || !strings.Contains(string(answer.Body), `"code":"store_full"`) {
		t.Errorf("a change on a full disk is answered with %v", answer)
	}
	for range 3 {
		fillUp(t, ballast)
		r.flowing("while the store's disk is full")
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := lab.Await(30*time.Second, "change once there is room", func() bool {
		answer, err = p.API("PUT", "/policies/full", change)
		return err == nil && answer.Status < 300
	}); err != nil {
		t.Errorf("%v: %v", err, answer)
	}
	r.exec("touch", "/tmp/enough")
	r.allowed("once there is room")
	r.complete()
	if h := r.health(); h.Lost != 0 || h.Nodes[0].State != "ok" {
		t.Errorf("the health is %+v", h)
	}
}

// storeOnSmallDisk starts control anew with its store on a disk of its own.
func storeOnSmallDisk(t *testing.T, p *lab.Product, dir string) {
	t.Helper()
	smallDisk(t, p, dir, "8m", "control")
	old, err := p.Kill("control", syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Await(10*time.Second, "end of control", func() bool { return syscall.Kill(old, 0) != nil }); err != nil {
		t.Fatal(err)
	}
	// It comes up again and again, finds no store and ends, until this is done: so the database itself comes last, and at once.
	small := seen(t, p, dir)
	for _, args := range [][]string{
		{"sh", "-c", `for f in "$0"/*; do [ "$f" = "$0/store.db" ] || cp -a "$f" "$1"; done`, dir, small},
		{"cp", "-a", dir + "/store.db", small + "/copy"}, {"mv", small + "/copy", small + "/store.db"},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("copying the store: %v\n%s", err, out)
		}
	}
	if err := lab.Await(60*time.Second, "API that answers", func() bool {
		answer, err := p.API("GET", "/settings/egress", nil)
		return err == nil && answer.Status == 200
	}); err != nil {
		t.Fatal(err)
	}
}

// TestStoreGoneClosesAndOpens moves the database away and kills control.
func TestStoreGoneClosesAndOpens(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	r := startRecording(t, l, p)
	r.allowed("at first")
	r.background(fmt.Sprintf(`n=0; while [ ! -e /tmp/enough ]; do n=$((n+1)); echo "/s/$n $(/workspace/hostile http %s:80 plain.test /s/$n)" >>/tmp/said; done`, r.addr))
	r.flowing("at first")
	store := filepath.Join(p.State, "control", "store.db")
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(store+end, store+end+".away"); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if _, err := p.Kill("control", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.flowing("for the while that the policy is fresh")
	last, since := 0, time.Now()
	if err := lab.Await(60*time.Second, "end of all traffic", func() bool {
		if n := len(r.arrived()); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 4*time.Second
	}); err != nil {
		t.Error(err)
	}
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(store+end+".away", store+end); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	if err := lab.Await(60*time.Second, "API that answers", func() bool {
		answer, err := p.API("GET", "/sandbox/"+r.ID, nil)
		return err == nil && answer.Status == 200
	}); err != nil {
		t.Fatal(err)
	}
	r.flowing("once the store is back")
	r.exec("touch", "/tmp/enough")
	r.allowed("after it all")
	refused, arrived := 0, r.arrived()
	for line := range strings.Lines(r.exec("cat", "/tmp/said").Stdout) {
		path, said, _ := strings.Cut(line, " ")
		if strings.Contains(said, " 503 ") && strings.Contains(said, "stale_policy") {
			if refused++; arrived[path] {
				t.Errorf("%s was refused, and reached its upstream", path)
			}
		}
	}
	if refused < 3 {
		t.Errorf("%d requests were refused as stale_policy", refused)
	}
	r.complete()
	if h := r.health(); h.Lost != 0 {
		t.Errorf("the spool held all of it, and the health is %+v", h)
	}
}
