package bank

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"portreeve.dev/lab"
)

// A world is the lab and the product that the rows are played in.
type world struct {
	t       *testing.T
	lab     *lab.Lab
	p       *lab.Product
	sender  []byte
	secret  string
	reasons map[string]bool
	edge    int // its pid
	memory  *sampler
}

// config stands below the lab's own for egress.
const config = "  doors: {http: '127.0.0.1:8444', socks: '127.0.0.1:1085'}\nnodes:\n  build_base: false\n"

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, sender: senderProgram(t), reasons: closedList(t)}
	w.lab = lab.Start(t, lab.Options{})
	w.hosts()
	// Whoever follows the environment of the node leads to where nobody may go.
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, "http://"+w.lab.Evil.Addr.String()+":8080")
	}
	w.p = w.lab.StartProduct(t, lab.ProductOptions{Config: config})
	var err error
	if w.edge, err = w.p.PID("edge"); err != nil {
		t.Fatal(err)
	}
	w.call("PUT", "/settings/egress?wait=applied", w.document("ceiling"), 200, nil)
	w.secret = "canary-bank-0123456789abcdef"
	if r := w.p.CLIWith(w.secret+"\n", "secret", "set", "bank"); r.Code != 0 {
		t.Fatalf("keeping a secret: %v", r)
	}
	if r := w.p.CLI("grant", "bank", "--host", "api.test", "--method", "GET,POST", "--path", "/v1/**"); r.Code != 0 {
		t.Fatalf("granting it: %v", r)
	}
	w.memory = sample(w.edge)
	t.Cleanup(w.memory.stop)
	return w
}

// call wants the status, and decodes the answer into out unless that is nil.
func (w *world) call(method, path string, body any, want int, out any) {
	w.t.Helper()
	answer, err := w.p.API(method, path, body)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	if answer.Status != want {
		w.t.Fatalf("%s %s: %v, want status %d", method, path, answer, want)
	}
	if out != nil {
		if err := answer.Into(out); err != nil {
			w.t.Fatal(err)
		}
	}
}

// document reads a file of the folder policies.
func (w *world) document(name string) any {
	w.t.Helper()
	data, err := os.ReadFile(filepath.Join("policies", name+".yaml"))
	if err != nil {
		w.t.Fatal(err)
	}
	var doc any
	if err := yaml.Unmarshal(data, &doc); err != nil {
		w.t.Fatalf("policy %s: %v", name, err)
	}
	return doc
}

// A box is a sandbox with the sender in it.
type box struct {
	w    *world
	id   string
	addr string

	http, socks *door // of an attached one
}

// A door is where an attached sandbox comes in, as the sender wants to know it.
type door struct {
	At   string `json:"at"`
	Name string `json:"name"`
	CA   string `json:"ca"`
	User string `json:"user"`
	Pass string `json:"pass"`
}

// tryAttach makes a sandbox that nobody runs, with its doors.
func (w *world) tryAttach(policy string) (*box, error) {
	w.t.Helper()
	answer, err := w.p.API("PUT", "/policies/"+policy, w.document(policy))
	if err != nil || answer.Status != 200 {
		return nil, fmt.Errorf("policy %s: %v %v", policy, answer, err)
	}
	var v struct {
		ID string `json:"sandbox_id"`
	}
	w.call("POST", "/sandbox/create", map[string]any{"kind": "attached", "timeout_seconds": 3600, "policy": policy}, 201, &v)
	w.t.Cleanup(func() { w.p.API("DELETE", "/sandbox/"+v.ID, nil) })
	b := &box{w: w, id: v.ID}
	for kind, into := range map[string]**door{"http": &b.http, "socks": &b.socks} {
		var d struct {
			URL      string `json:"url"`
			Username string `json:"username"`
			Password string `json:"password"`
			CA       string `json:"ca"`
		}
		w.call("POST", "/sandbox/"+v.ID+"/door", map[string]any{"door": kind}, 201, &d)
		u, err := url.Parse(d.URL)
		if err != nil {
			return nil, err
		}
		*into = &door{At: "127.0.0.1:" + u.Port(), Name: u.Hostname(), CA: d.CA, User: d.Username, Pass: d.Password}
	}
	return b, nil
}

// box makes a sandbox under a policy of the folder.
func (w *world) box(policy string) *box {
	w.t.Helper()
	b, err := w.tryBox(policy)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// tryBox is box for policies that the product may not know yet.
func (w *world) tryBox(policy string) (*box, error) {
	w.t.Helper()
	answer, err := w.p.API("PUT", "/policies/"+policy, w.document(policy))
	if err != nil || answer.Status != 200 {
		return nil, fmt.Errorf("policy %s: %v %v", policy, answer, err)
	}
	return w.under(policy), nil
}

// arm makes a sandbox with the sender in it.
func (w *world) arm(body map[string]any) *box {
	w.t.Helper()
	var v struct {
		ID   string `json:"sandbox_id"`
		Addr string `json:"addr"`
	}
	w.call("POST", "/sandbox/create", body, 201, &v)
	w.t.Cleanup(func() { w.p.API("DELETE", "/sandbox/"+v.ID, nil) })
	b := &box{w: w, id: v.ID, addr: v.Addr}
	b.write("/workspace/sender", w.sender)
	if r := b.exec(20, "chmod", "755", "/workspace/sender"); r.Code != 0 {
		w.t.Fatalf("making sender a program: %+v", r)
	}
	return b
}

func (b *box) write(path string, data []byte) {
	b.w.t.Helper()
	file := map[string]any{"path": path, "content": base64.StdEncoding.EncodeToString(data)}
	b.w.call("POST", "/sandbox/"+b.id+"/files", map[string]any{"files": []any{file}}, 200, nil)
}

// A result is what a command in a sandbox came to.
type result struct {
	Code   int    `json:"exit_code"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
}

func (b *box) exec(seconds int, argv ...string) result {
	b.w.t.Helper()
	var r result
	b.w.call("POST", "/sandbox/"+b.id+"/execute", map[string]any{"command": argv, "timeout": seconds * 1000}, 200, &r)
	return r
}

// A decision is one line of the record.
type decision struct {
	ID      string    `json:"id"`
	Time    time.Time `json:"time"`
	Layer   string    `json:"layer"`
	Level   string    `json:"level"`
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason"`
	Host    string    `json:"host"`
	Addr    string    `json:"address"`
	Port    int       `json:"port"`
	Method  string    `json:"method"`
	Path    string    `json:"path"`
	Closed  bool      `json:"closed"`
	Count   uint64    `json:"count"`
	Error   string    `json:"error"`
	Version int64     `json:"policy_version"`
}

func (d decision) String() string {
	return fmt.Sprintf("%s/%s %s %s %s:%d %s %s", d.Layer, d.Verdict, d.Reason, d.Host, d.Addr, d.Port, d.Method, d.Path)
}

// decisions returns the whole record of the sandbox. A name that only this call asks for is awaited first, so that
// everything before it is there.
func (b *box) decisions() []decision {
	b.w.t.Helper()
	fence := fmt.Sprintf("fence-%d.localhost", time.Now().UnixNano()) // which the floor denies, whatever the policy
	if b.http == nil {
		b.exec(20, "nslookup", "-type=a", fence)
	} else {
		b.says(3000, map[string]any{"ask": map[string]any{"to": fence + ":443"}})
	}
	var all []decision
	err := lab.Await(20*time.Second, "the record of "+fence, func() bool {
		var page struct {
			Decisions []decision `json:"decisions"`
		}
		b.w.call("GET", "/settings/egress/audit?limit=1&sandbox_id="+b.id+"&host="+fence, nil, 200, &page)
		return len(page.Decisions) > 0
	})
	if err != nil {
		b.w.t.Fatal(err)
	}
	cursor := ""
	for {
		var page struct {
			Decisions []decision `json:"decisions"`
			Next      *string    `json:"next_cursor"`
		}
		b.w.call("GET", "/settings/egress/audit?limit=1000&sandbox_id="+b.id+cursor, nil, 200, &page)
		all = append(all, page.Decisions...)
		if page.Next == nil {
			return all
		}
		cursor = "&cursor=" + *page.Next
	}
}

var senderProgram = func() func(t *testing.T) []byte {
	build := sync.OnceValues(func() ([]byte, error) {
		dir, err := os.MkdirTemp("", "sender")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "sender"), "./sender")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("building sender: %w\n%s", err, out)
		}
		return os.ReadFile(filepath.Join(dir, "sender"))
	})
	return func(t *testing.T) []byte {
		t.Helper()
		data, err := build()
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
}()

// closedList reads the reasons out of the source, as nothing of ours but the lab is built into these tests.
func closedList(t *testing.T) map[string]bool {
	t.Helper()
	root, err := lab.RepoRoot()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, "policies", "reason.go"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\tReason\w+\s+Reason = "([a-z0-9_]+)"`).FindAllStringSubmatch(string(data), -1) {
		all[m[1]] = true
	}
	if len(all) < 20 {
		t.Fatalf("only %d reasons in the source", len(all))
	}
	return all
}

// A sampler watches how much memory a process has, and how much processor time it took.
type sampler struct {
	mu   sync.Mutex
	at   []int64
	kib  []int
	cpu  []time.Duration
	quit chan struct{}
	done sync.WaitGroup
}

func sample(pid int) *sampler {
	s := &sampler{quit: make(chan struct{})}
	s.done.Go(func() {
		tick := time.NewTicker(40 * time.Millisecond)
		defer tick.Stop()
		for {
			kib, err := rss(pid)
			cpu, errs := cpuTime(pid)
			if err == nil && errs == nil {
				s.mu.Lock()
				s.at, s.kib, s.cpu = append(s.at, time.Now().UnixNano()), append(s.kib, kib), append(s.cpu, cpu)
				s.mu.Unlock()
			}
			select {
			case <-tick.C:
			case <-s.quit:
				return
			}
		}
	})
	return s
}

func (s *sampler) stop() {
	close(s.quit)
	s.done.Wait()
}

// grown is by how much it grew between two times, in MiB.
func (s *sampler) grown(from, to int64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, most := 0, 0
	for i, at := range s.at {
		if at <= from || first == 0 {
			first = s.kib[i]
		}
		if at > from && at <= to {
			most = max(most, s.kib[i])
		}
	}
	return max(0, most-first) >> 10
}

// took is how much processor time it took between two times.
func (s *sampler) took(from, to int64) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first, last time.Duration
	for i, at := range s.at {
		if at <= from || first == 0 {
			first = s.cpu[i]
		}
		if last = s.cpu[i]; at > to {
			break
		}
	}
	return last - first
}

// cpuTime is user and system time; the kernel counts in hundredths of a second.
func cpuTime(pid int) (time.Duration, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("the stat of %d is %q", pid, data)
	}
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, err
}

func rss(pid int) (int, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(data), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(rest, " kB")))
		}
	}
	return 0, fmt.Errorf("no VmRSS for %d", pid)
}

func asJSON(v any) string {
	data, _ := json.Marshal(v)
	return string(data)
}
