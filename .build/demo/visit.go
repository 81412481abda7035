package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"syscall"
	"time"

	"portreeve.dev/lab"
)

// A visit is one run of the tour.
type visit struct {
	broken  string
	lab     *lab.Lab
	before  lab.World
	product *lab.Product
	refused string // the decision of the first try
	box     string // the sandbox of the steps about keys and tunnels
	tunnel  tunnel
}

// fetch is what the visitor's sandbox runs, first in vain.
var fetch = []string{"run", "--template", "tiny", "--", "wget", "-qO-", "https://example.com/"}

var decisionID = regexp.MustCompile(`dec_[0-9a-f-]{36}`)

func (v *visit) steps() []step {
	return []step{
		{"a small internet, in namespaces of its own, and Portreeve beside it", v.start},
		{"a sandbox calls https://example.com/ and is refused: a fresh installation allows nothing", v.refuse},
		{"the refusal says why", v.explain},
		{"of the refused call not one packet went out", v.silence},
		{"example.com is allowed for an hour", v.allow},
		{"the same call arrives", v.arrive},
		{"the proxy is killed while a sandbox calls evil.test: nothing gets out, and the proxy comes back", v.kill},
		{"a key is kept for https://api.test/", v.keep},
		{"a sandbox calls https://api.test/ with a key of its own: the kept one arrives in its place", v.carry},
		{"the kept key is nowhere in the sandbox", v.search},
		{"a port of the sandbox gets a URL", v.open},
		{"the sandbox is paused, and a call to its URL wakes it", v.wake},
		{"a POST to https://api.test/ is refused: the rule names GET only", v.post},
		{"the audit log tells who did all this", v.audit},
		{"a hostile sandbox tries every way out that we know of", v.probe},
		{"everything stops and leaves nothing behind", v.stop},
	}
}

func (v *visit) start() (string, error) {
	var err error
	if v.lab, err = lab.New(lab.Options{}); err != nil {
		return "", err
	}
	if v.before, err = v.lab.Look(); err != nil {
		return "", err
	}
	v.product, err = v.lab.NewProduct(lab.ProductOptions{Config: "nodes:\n  build_base: false\n"})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("API at %s, edge namespace %s", v.product.Info.APIURL, v.product.Info.EdgeNetns), nil
}

func (v *visit) refuse() (string, error) {
	r := v.product.CLI(fetch...)
	v.refused = decisionID.FindString(r.Stdout + r.Stderr)
	if r.Code == 0 || v.refused == "" {
		return r.String(), errors.New("it was not refused with a decision")
	}
	return r.Stderr, nil
}

func (v *visit) explain() (string, error) {
	r := v.product.CLI("explain", v.refused)
	if r.Code != 0 || !strings.Contains(r.Stdout, "no_rule") {
		return r.String(), errors.New("it does not say that no rule allows it")
	}
	return r.Stdout, nil
}

func (v *visit) silence() (string, error) {
	if err := v.lab.Capture.Only(); err != nil {
		return "", err
	}
	return "the capture on the uplink saw no packet of ours", nil
}

func (v *visit) allow() (string, error) {
	if v.broken == "allow" {
		return "(skipped on purpose)", nil
	}
	r := v.product.CLI("allow", "example.com", "--for", "1h")
	if r.Code != 0 {
		return r.String(), errors.New("it was not allowed")
	}
	return r.Stderr, nil
}

func (v *visit) arrive() (string, error) {
	r := v.product.CLI(fetch...)
	if r.Code != 0 || len(v.lab.Web.Requests("example.com")) != 1 {
		return r.String(), fmt.Errorf("example.com received %d calls", len(v.lab.Web.Requests("example.com")))
	}
	return r.Stdout, nil
}

func (v *visit) kill() (string, error) {
	created := v.product.CLI("sandbox", "create", "--template", "tiny")
	id := strings.TrimSpace(created.Stdout)
	if created.Code != 0 || id == "" {
		return created.String(), errors.New("no sandbox")
	}
	const calls = "(while :; do wget -qO- http://evil.test/; wget -qO- http://198.51.100.66/; nslookup evil.test 198.51.100.66; ping -c1 -W1 198.51.100.66; done) >/dev/null 2>&1 &"
	if r := v.product.CLI("sandbox", "exec", id, "--", "sh", "-c", calls); r.Code != 0 {
		return r.String(), errors.New("the sandbox does not call")
	}
	old, err := v.product.Kill("edge", syscall.SIGKILL)
	if err != nil {
		return "", err
	}
	if v.broken == "kill" {
		if _, err := v.lab.DialGateway(context.Background(), "tcp", v.lab.Evil.Addr.String()+":80"); err != nil {
			return "", err
		}
	}
	if err := v.product.AwaitRestart("edge", old, 20*time.Second); err != nil {
		return "", err
	}
	if err := v.lab.Capture.Quiet(v.lab.Evil.Addr, v.lab.Evil.Addr6); err != nil {
		return "", err
	}
	if r := v.product.CLI("sandbox", "delete", id); r.Code != 0 {
		return r.String(), errors.New("the sandbox was not deleted")
	}
	return "the capture saw no packet to evil.test", nil
}

func (v *visit) probe() (string, error) {
	if err := v.leave(); err != nil {
		return "", err
	}
	r := v.product.CLI("probe")
	if r.Code != 0 {
		return r.String(), errors.New("something got out")
	}
	lines := strings.Split(strings.TrimSpace(r.Stderr), "\n")
	return lines[len(lines)-1], nil
}

func (v *visit) stop() (string, error) {
	began := time.Now()
	if err := v.product.Stop(); err != nil {
		return "", err
	}
	took := time.Since(began)
	after, err := v.lab.Look()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("stopped in %.1f s", took.Seconds()), lab.Left(v.before, after)
}

// end removes what is left of a visit that was cut short.
func (v *visit) end() {
	if v.product != nil {
		v.product.Stop()
	}
	if v.lab != nil {
		v.lab.Close()
	}
}

// indent keeps the beginning of what was seen, under its step.
func indent(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > 12 {
		lines = append(lines[:12], "...")
	}
	return strings.Join(lines, "\n    ")
}
