// The wget of the image tiny sends no list of signature algorithms. The lab's servers must answer it as others do.

//go:debug tlssha1=1

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// world is the lab and the product that tests share which neither kill nor misconfigure it.
var world struct {
	once    sync.Once
	lab     *lab.Lab
	product *lab.Product
	err     error
}

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		f.Value.Set("6") // those that run side by side mostly wait
	}
	code := m.Run()
	if world.product != nil {
		if err := world.product.Stop(); err != nil {
			fmt.Println("stopping the shared product:", err)
			code = 1
		}
		if code != 0 {
			fmt.Printf("the shared product printed:\n%s\n", world.product.Log(100))
		}
	}
	if world.lab != nil {
		if err := world.lab.Close(); err != nil {
			fmt.Println("closing the shared lab:", err)
			code = 1
		}
	}
	return code
}

// small is the configuration that tests add: nobody waits for an image that they don't use.
const small = "nodes:\n  build_base: false\n"

func shared(t *testing.T) (*lab.Lab, *lab.Product) {
	t.Helper()
	world.once.Do(func() {
		if world.lab, world.err = lab.New(lab.Options{}); world.err == nil {
			world.product, world.err = world.lab.NewProduct(lab.ProductOptions{Config: small})
		}
	})
	if world.err != nil {
		t.Fatalf("starting the shared product: %v", world.err)
	}
	return world.lab, world.product
}

// own starts a lab and a product for one test alone. Tests that use nothing shared run side by side.
func own(t *testing.T) (*lab.Lab, *lab.Product) {
	t.Helper()
	l := lab.Start(t, lab.Options{})
	return l, l.StartProduct(t, lab.ProductOptions{Config: small})
}

// call wants the status, and decodes the answer into out unless that is nil.
func call(t *testing.T, p *lab.Product, method, path string, body any, want int, out any) {
	t.Helper()
	answer, err := p.API(method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if answer.Status != want {
		t.Fatalf("%s %s: %v, want status %d", method, path, answer, want)
	}
	if out != nil {
		if err := answer.Into(out); err != nil {
			t.Fatal(err)
		}
	}
}

// ceiling replaces the org's rules, and returns once every holder has them.
func ceiling(t *testing.T, p *lab.Product, rules ...map[string]any) {
	t.Helper()
	if rules == nil {
		rules = []map[string]any{}
	}
	call(t, p, "PUT", "/settings/egress?wait=applied", map[string]any{"rules": rules}, 200, nil)
}

// allow makes an allow rule; more is pairs of field and value.
func allow(id, host string, more ...any) map[string]any {
	rule := map[string]any{"id": id, "action": "allow", "hosts": []string{host}}
	for i := 0; i < len(more); i += 2 {
		rule[more[i].(string)] = more[i+1]
	}
	return rule
}

// A box is a sandbox of a test.
type box struct {
	t  *testing.T
	p  *lab.Product
	ID string
}

// A view is what the API says of a sandbox.
type view struct {
	ID          string `json:"sandbox_id"`
	Status      string `json:"status"`
	Reason      string `json:"reason"`
	Addr        string `json:"addr"`
	RunscID     string `json:"runsc_id"`
	Incarnation uint64 `json:"incarnation"`
	Generation  uint64 `json:"generation"`
	Policy      string `json:"policy"`
}

// sandbox makes a tiny sandbox that ends with the test; more is pairs of field and value.
func sandbox(t *testing.T, p *lab.Product, more ...any) *box {
	t.Helper()
	body := map[string]any{"template": "tiny", "memory": "256Mi", "cpus": "1"}
	for i := 0; i < len(more); i += 2 {
		body[more[i].(string)] = more[i+1]
	}
	var v view
	call(t, p, "POST", "/sandbox/create", body, 201, &v)
	b := &box{t, p, v.ID}
	t.Cleanup(func() { p.API("DELETE", "/sandbox/"+v.ID, nil) })
	return b
}

func (b *box) view() view {
	b.t.Helper()
	var v view
	call(b.t, b.p, "GET", "/sandbox/"+b.ID, nil, 200, &v)
	return v
}

// A result is what a command in a sandbox came to.
type result struct {
	Code   int    `json:"exit_code"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

// exec runs a command in the sandbox.
func (b *box) exec(argv ...string) result {
	b.t.Helper()
	var r result
	call(b.t, b.p, "POST", "/sandbox/"+b.ID+"/execute", map[string]any{"command": argv, "timeout": 60_000}, 200, &r)
	return r
}

// write puts a file into the sandbox.
func (b *box) write(path string, data []byte) {
	b.t.Helper()
	file := map[string]any{"path": path, "content": base64.StdEncoding.EncodeToString(data)}
	call(b.t, b.p, "POST", "/sandbox/"+b.ID+"/files", map[string]any{"files": []any{file}}, 200, nil)
}

var hostileProgram = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "hostile")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "hostile"), "./hostile")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building hostile: %w\n%s", err, out)
	}
	return os.ReadFile(filepath.Join(dir, "hostile"))
})

// armed makes a sandbox with the program hostile in it.
func armed(t *testing.T, p *lab.Product, more ...any) *box {
	t.Helper()
	b := sandbox(t, p, more...)
	b.arm()
	return b
}

// arm puts the program hostile into the sandbox.
func (b *box) arm() {
	b.t.Helper()
	program, err := hostileProgram()
	if err != nil {
		b.t.Fatal(err)
	}
	b.write("/workspace/hostile", program)
	if r := b.exec("chmod", "755", "/workspace/hostile"); r.Code != 0 {
		b.t.Fatalf("making hostile a program: %+v", r)
	}
}

// background starts a command that goes on by itself.
func (b *box) background(command string) {
	b.t.Helper()
	if r := b.exec("sh", "-c", command+" >/dev/null 2>&1 &"); r.Code != 0 {
		b.t.Fatalf("starting %q: %+v", command, r)
	}
}

// works waits until a command in the sandbox is done with status 0, past errors of a product that is coming back.
func (b *box) works(when string, argv ...string) {
	b.t.Helper()
	var last string
	err := lab.Await(30*time.Second, strings.Join(argv, " ")+" that works "+when, func() bool {
		answer, err := b.p.API("POST", "/sandbox/"+b.ID+"/execute", map[string]any{"command": argv, "timeout": 20_000})
		var r result
		last = fmt.Sprint(answer, err)
		return err == nil && answer.Status == 200 && answer.Into(&r) == nil && r.Code == 0
	})
	if err != nil {
		b.t.Errorf("%v; the last answer was %s", err, last)
	}
}

// hostile runs the program, and returns whether it got through and what it said.
func (b *box) hostile(args ...string) (bool, string) {
	b.t.Helper()
	r := b.exec(append([]string{"/workspace/hostile"}, args...)...)
	said := strings.TrimSpace(r.Stdout)
	if word, _, _ := strings.Cut(said, " "); word != "ok" && word != "refused" {
		b.t.Fatalf("hostile %v: %+v", args, r)
	}
	return r.Code == 0, said
}

// A decision is one line of the record.
type decision struct {
	ID      string    `json:"id"`
	Time    time.Time `json:"time"`
	Sandbox string    `json:"sandbox_id"`
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason"`
	Rule    string    `json:"rule"`
	Host    string    `json:"host"`
	Addr    string    `json:"address"`
	Port    int       `json:"port"`
	Level   string    `json:"level"`
	Layer   string    `json:"layer"`
	Method  string    `json:"method"`
	Path    string    `json:"path"`
	Closed  bool      `json:"closed"`
	Count   uint64    `json:"count"` // of equal ones that it stands for; 0 is one
	Out     int64     `json:"bytes_out"`
	In      int64     `json:"bytes_in"`
	Status  int       `json:"status"`
	Error   string    `json:"error"`
	Secrets []use     `json:"secrets"`

	Guidance string `json:"agent_guidance"`
}

// decisions returns the record of the sandbox, newest first.
func (b *box) decisions() []decision {
	b.t.Helper()
	var page struct {
		Decisions []decision `json:"decisions"`
	}
	call(b.t, b.p, "GET", "/settings/egress/audit?sandbox_id="+b.ID, nil, 200, &page)
	return page.Decisions
}

// decided waits for a decision that matches, as the record reaches the store a moment after the verdict.
func (b *box) decided(what string, match func(decision) bool) decision {
	b.t.Helper()
	var found decision
	err := lab.Await(10*time.Second, "decision that "+what, func() bool {
		for _, d := range b.decisions() {
			if match(d) {
				found = d
				return true
			}
		}
		return false
	})
	if err != nil {
		all, _ := json.Marshal(b.decisions())
		b.t.Fatalf("%v; the record: %s", err, all)
	}
	return found
}
