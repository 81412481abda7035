package e2e

import (
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// tryEvil lets a sandbox reach for evil.test by everything it knows, in the background.
func tryEvil(t *testing.T, l *lab.Lab, b *box, seconds string) {
	t.Helper()
	line := strings.Join([]string{"/workspace/hostile try", seconds, "evil.test", l.Evil.Addr.String(), l.Evil.Addr6.String(), ">/dev/null 2>&1 &"}, " ")
	if r := b.exec("sh", "-c", line); r.Code != 0 {
		t.Fatalf("starting the tries: %+v", r)
	}
}

func quiet(t *testing.T, l *lab.Lab, when string) {
	t.Helper()
	if err := l.Capture.Quiet(l.Evil.Addr, l.Evil.Addr6); err != nil {
		t.Errorf("%s: %v", when, err)
	}
	if err := l.Capture.Unspoken("evil.test"); err != nil {
		t.Errorf("%s: %v", when, err)
	}
	if contacts := l.Evil.Contacts(); len(contacts) > 0 {
		t.Errorf("%s: evil.test was reached: %+v", when, contacts)
	}
}

// TestNothingOutWhileProcessesDie kills each process in turn while a sandbox tries to get out, with the capture on the
// uplink as judge. That the same sandbox gets to an allowed host before and after shows that the capture sees.
func TestNothingOutWhileProcessesDie(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, lab.Options{})
	before, err := l.Look()
	if err != nil {
		t.Fatal(err)
	}
	p := l.StartProduct(t, lab.ProductOptions{Config: small})
	ceiling(t, p, allow("good", "good.test"))
	b := armed(t, p)
	if open, said := b.hostile("tls", "good.test:443", "good.test", "good.test", "/"); !open {
		t.Fatalf("an allowed host, before: %s", said)
	}
	tryEvil(t, l, b, "240")
	b.decided("denies evil.test", func(d decision) bool { return d.Host == "evil.test" })
	quiet(t, l, "with all processes alive")
	tries := 0
	// goesOn makes sure that a silence is one of a sandbox that tries.
	goesOn := func(when string) {
		t.Helper()
		if err := lab.Await(10*time.Second, "more tries "+when, func() bool {
			now, _ := strconv.Atoi(strings.TrimSpace(b.exec("cat", "/workspace/tries").Stdout))
			more := now > tries+20
			if more {
				tries = now
			}
			return more
		}); err != nil {
			t.Error(err)
		}
	}
	for _, role := range []string{"edge", "inward", "node", "control", "ingress"} {
		old, err := p.Kill(role, syscall.SIGKILL)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.AwaitRestart(role, old, 15*time.Second); err != nil {
			t.Fatal(err)
		}
		b.works("after the death of "+role, "/workspace/hostile", "tls", "good.test:443", "good.test", "good.test", "/")
		goesOn("after the death of " + role)
		quiet(t, l, "after the death of "+role)
	}
	if r := p.InEdge("nft", "flush", "ruleset"); r.Code != 0 {
		t.Fatalf("deleting the rules: %v", r)
	}
	goesOn("with the rules deleted")
	watch(t, l, 3*time.Second)
	quiet(t, l, "with the rules deleted")
	noUplink(t, p)
	if _, err := p.Kill("supervisor", syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if err := lab.Await(5*time.Second, "end of the other processes", func() bool {
		return !slices.ContainsFunc(look(t, l), func(line string) bool {
			return strings.HasPrefix(line, "process ") && strings.Contains(line, p.State+"/bin/portreeve")
		})
	}); err != nil {
		t.Errorf("%v without a supervisor: %v", err, look(t, l))
	}
	watch(t, l, 3*time.Second)
	quiet(t, l, "after the death of the supervisor")

	again := l.StartProduct(t, lab.ProductOptions{Config: small, State: p.State})
	quiet(t, l, "while the next run cleans up")
	if answer, err := again.API("GET", "/sandbox/"+b.ID, nil); err != nil || answer.Status == 200 && strings.Contains(string(answer.Body), `"status":"running"`) {
		t.Errorf("the sandbox of a killed run: %v %v", answer, err)
	}
	if err := again.Stop(); err != nil {
		t.Error(err)
	}
	after, err := l.Look()
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Left(before, after); err != nil {
		t.Errorf("after the next run has cleaned up and stopped: %v", err)
	}
}

// watch lets the world go on for a while.
func watch(t *testing.T, l *lab.Lab, d time.Duration) {
	t.Helper()
	if _, err := l.Capture.Await(d, func(p lab.Packet) bool { return p.Touches(l.Evil.Addr) }); err == nil {
		t.Error("a packet to evil.test")
	}
}

// noUplink wants only lo and link ends in the edge namespace, no default route, no forwarding.
func noUplink(t *testing.T, p *lab.Product) {
	t.Helper()
	links := p.InEdge("ip", "-d", "-o", "link")
	if links.Code != 0 {
		t.Fatalf("listing the links: %v", links)
	}
	for _, link := range strings.Split(strings.TrimSpace(links.Stdout), "\n") {
		if !strings.Contains(link, ": lo: ") && !strings.Contains(link, " veth ") {
			t.Errorf("the edge namespace has the link %s", link)
		}
	}
	for _, family := range []string{"-4", "-6"} {
		if r := p.InEdge("ip", family, "route", "show", "default"); strings.TrimSpace(r.Stdout) != "" {
			t.Errorf("the edge namespace has a default route: %s", r.Stdout)
		}
	}
	if r := p.InEdge("cat", "/proc/sys/net/ipv4/ip_forward"); strings.TrimSpace(r.Stdout) != "0" {
		t.Errorf("the edge namespace forwards: %v", r)
	}
}

func TestEdgeNamespaceHasNoUplink(t *testing.T) {
	_, p := shared(t)
	sandbox(t, p)
	noUplink(t, p)
}
