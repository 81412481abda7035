package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A product is a running Portreeve with two orgs, each with one sandbox whose place a plain client takes.
type product struct {
	w    *world
	proc *process
	info struct {
		APIURL     string         `json:"api_url"`
		APIKey     string         `json:"api_key"`
		PIDs       map[string]int `json:"pids"`
		SetupToken string         `json:"setup_token"`
		EdgeNetns  string         `json:"edge_netns"`
	}
	client   *http.Client
	keys     []string // of each org
	boxes    []*box   // one of each org
	attached string   // a sandbox of the first org that comes in by doors
	edits    int      // changes of the first org's policy
}

// A box is a sandbox's namespace, with a client's address in it.
type box struct {
	space
	gateway string // where its resolver is
}

const config = `
nodes: {build_base: false}
limits: {connections_per_sandbox: 20000, connects_per_second: 100000, lookups_per_second: 100000, decisions_per_second: 100000}
egress:
  limits: {connections_per_destination: 20000}
  upstream_dns: ["%[1]s"]
  upstream_ca: [%[2]q]
  floor_exempt: [{cidr: 203.0.113.0/24}]
  doors: {http: "%[3]s:%[4]s", name: door.test}
`

func (w *world) startProduct(ctx context.Context) (*product, error) {
	p := &product{w: w, client: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DialContext: w.dialGate}}}
	if err := os.WriteFile(w.path("config.yaml"), fmt.Appendf(nil, config, targetAddr, w.path("ca.pem"), doorAddr, doorPort), 0o644); err != nil {
		return nil, err
	}
	var err error
	p.proc, err = w.start("portreeve", w.gate, w.bin+"/portreeve", "dev", "--state", w.path("state"), "--http", "127.0.0.1:8080", "--https", "127.0.0.1:8443",
		"--config", w.path("config.yaml"), "--info", w.path("info.json"))
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if text, err := os.ReadFile(w.path("info.json")); err == nil {
			if err := json.Unmarshal(text, &p.info); err != nil {
				return nil, err
			}
			break
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("the product does not start: %s", p.proc.said())
		}
	}
	var second struct {
		APIKey struct {
			Key string `json:"key"`
		} `json:"api_key"`
	}
	if err := p.call("", "POST", "/register", map[string]any{"email": "b@example.com", "organization_name": "second", "setup_token": p.info.SetupToken}, &second); err != nil {
		return nil, err
	}
	p.keys = []string{p.info.APIKey, second.APIKey.Key}
	for _, key := range p.keys {
		b, err := p.furnish(key)
		if err != nil {
			return nil, err
		}
		p.boxes = append(p.boxes, b)
	}
	if err := p.freeze(); err != nil {
		return nil, err
	}
	return p, p.attach()
}

// furnish gives an org its rules, a granted secret and a sandbox, and puts a client in the sandbox's place.
func (p *product) furnish(key string) (*box, error) {
	if err := p.allow(key, 0); err != nil {
		return nil, err
	}
	if err := p.call(key, "POST", "/secrets", map[string]any{"name": "bench", "value": "0123456789abcdef"}, nil); err != nil {
		return nil, err
	}
	grant := map[string]any{"host": "open.test", "place": "header", "header": "X-Api-Key"}
	if err := p.call(key, "PUT", "/secrets/bench/grants", map[string]any{"grants": []any{grant}}, nil); err != nil {
		return nil, err
	}
	var made struct {
		ID string `json:"sandbox_id"`
	}
	if err := p.call(key, "POST", "/sandbox/create", map[string]any{"template": "tiny", "timeout_seconds": 3600}, &made); err != nil {
		return nil, err
	}
	var view struct {
		Addr string `json:"addr"`
	}
	if err := p.call(key, "GET", "/sandbox/"+made.ID, nil, &view); err != nil {
		return nil, err
	}
	if err := p.call(key, "POST", "/sandbox/"+made.ID+"/pause", nil, nil); err != nil {
		return nil, err
	}
	return p.occupy(view.Addr)
}

// allow gives an org its rules and returns when they are in force. They differ by n in one host, so that each call changes something.
func (p *product) allow(key string, n int) error {
	rules := []any{
		map[string]any{"id": "open", "action": "allow", "hosts": []string{"open.test", "kept.test", "flood.test"}, "tls": "inspect", "foreign_credentials": "allow"},
		map[string]any{"id": "counted", "action": "allow", "hosts": []string{"counted.test"}, "tls": "inspect", "foreign_credentials": "allow", "log": "count"},
		map[string]any{"id": "pass", "action": "allow", "hosts": []string{"pass.test"}},
		map[string]any{"id": "tally", "action": "allow", "hosts": []string{"tally.test"}, "log": "count"},
		map[string]any{"id": "each", "action": "allow", "hosts": []string{"*.w0.each.test", "*.w1.each.test", "*.w2.each.test", "*.w3.each.test"}},
		map[string]any{"id": "change", "action": "allow", "hosts": []string{fmt.Sprintf("n%d.change.test", n)}},
	}
	return p.call(key, "PUT", "/settings/egress?wait=applied", map[string]any{"rules": rules}, nil)
}

// freeze stops the sandboxes' kernels themselves, of those too that wait to be given out, as nothing tells them apart: gVisor's network
// goes on while its programs are paused, and would reset connections that it knows nothing of.
func (p *product) freeze() error {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	frozen := 0
	for _, file := range lines {
		line, _ := os.ReadFile(file)
		pid, err := strconv.Atoi(strings.Split(file, "/")[2])
		if err != nil || !bytes.HasPrefix(line, []byte("runsc-sandbox")) || !bytes.Contains(line, []byte(p.w.path("state"))) {
			continue
		}
		p.w.undo = append(p.w.undo, func() { syscall.Kill(pid, syscall.SIGCONT) })
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		frozen++
	}
	if frozen < len(p.boxes) {
		return fmt.Errorf("%d sandboxes have %d processes", len(p.boxes), frozen)
	}
	return nil
}

// occupy gives a sandbox's link the address that gVisor has taken off it, so that a plain client can be there.
func (p *product) occupy(addr string) (*box, error) {
	ip := net.ParseIP(addr).To4()
	ip[3]-- // the even address of the pair is the edge's
	name, err := p.behind(ip.String())
	if err != nil {
		return nil, err
	}
	b := &box{space{name, p.info.PIDs["node"]}, ip.String()}
	for _, args := range [][]string{{"ip", "addr", "add", addr + "/31", "dev", "eth0"}, {"ip", "route", "add", "default", "via", b.gateway}} {
		if _, err := b.run(args...); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// behind finds the namespace whose link ends at an address of the edge's: there are also sandboxes that wait to be given out.
func (p *product) behind(gateway string) (string, error) {
	edge := &space{p.info.EdgeNetns, p.info.PIDs["node"]}
	text, err := edge.run("ip", "-o", "addr", "show", "to", gateway)
	if err != nil {
		return "", err
	}
	index, _, _ := strings.Cut(text, ":")
	names, err := output("nsenter", "-t", fmt.Sprint(edge.mount), "-m", "ip", "netns", "list")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(names) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(name, "pr"+strings.TrimPrefix(p.info.EdgeNetns, "portreeve-")+"-") {
			continue
		}
		link, err := (&space{name, edge.mount}).run("ip", "-o", "link", "show", "eth0")
		if err == nil && strings.Contains(link, "eth0@if"+index+":") {
			return name, nil
		}
	}
	return "", fmt.Errorf("no namespace behind %s in %q", gateway, names)
}

// call is one call of the API; an answer that is no success is an error.
func (p *product) call(key, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequest(method, p.info.APIURL+path, body)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Authorization", "ApiKey "+key)
	}
	answer, err := p.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %v: %s", method, path, answer.Status, err, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

// last is the newest decision of an org, for an error.
func (p *product) last(org int) string {
	var list struct{ Decisions []json.RawMessage }
	if err := p.call(p.keys[org], "GET", "/decisions?limit=1", nil, &list); err != nil || len(list.Decisions) == 0 {
		return fmt.Sprint("none: ", err)
	}
	return string(list.Decisions[0])
}

// dialGate dials inside the product's namespace: a socket stays where it was made.
func (w *world) dialGate(ctx context.Context, network, addr string) (c net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
		var h *os.File
		if h, err = os.Open("/run/netns/" + w.gate.name); err != nil {
			return
		}
		defer h.Close()
		if err = unix.Setns(int(h.Fd()), unix.CLONE_NEWNET); err != nil {
			return
		}
		var d net.Dialer
		c, err = d.DialContext(ctx, network, addr)
	}()
	<-done
	return c, err
}
