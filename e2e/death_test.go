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

// TestNothingOutWhileProcessesDie kills each process in turn while a sandbox tries to get out, beside traffic that is allowed,
// with the capture on the uplink as judge. That the same sandbox gets to an allowed host before and after shows that the capture sees.
func TestNothingOutWhileProcessesDie(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, lab.Options{})
	before, err := l.Look()
	if err != nil {
		t.Fatal(err)
	}
	p := l.StartProduct(t, lab.ProductOptions{Config: small})
	ceiling(t, p, allow("good", "good.test"), inspect("api", "api.test", "paths", []string{"/v1/**"}))
	b := armed(t, p)
	if open, said := b.hostile("tls", "good.test:443", "good.test", "good.test", "/"); !open {
		t.Fatalf("an allowed host, before: %s", said)
	}
	tryEvil(t, l, b, "240")
	// Allowed traffic goes on all the time too, passed through and opened, and asks for what it may not have on the way.
	b.background("while :; do /workspace/hostile tls good.test:443 good.test good.test /; sleep 0.1; done")
	b.background(`while :; do /workspace/hostile opened '{"to":"api.test:443","requests":[{"method":"GET","target":"/v1/x","host":"api.test"},{"method":"GET","target":"/admin","host":"api.test"},{"method":"GET","target":"/v1/x","host":"evil.test"}]}'; sleep 0.1; done`)
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
		onlyRecorded(t, l, b, "after the death of "+role)
	}
	if err := lab.Await(30*time.Second, "more of what is allowed", func() bool { return len(l.Web.Requests("api.test")) >= 20 }); err != nil {
		t.Error(err)
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
	var answer lab.Answer
	if err := lab.Await(20*time.Second, "word that the sandbox of a killed run is gone", func() bool { // rows follow once the node is there
		answer, err = again.API("GET", "/sandbox/"+b.ID, nil)
		return err == nil && (answer.Status != 200 || !strings.Contains(string(answer.Body), `"status":"running"`))
	}); err != nil {
		t.Errorf("%v: %v", err, answer)
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

// onlyRecorded wants nothing on the uplink but queries for allowed names and connections to allowed hosts, each of which was
// recorded before it was opened: so there are never more of them than records.
func onlyRecorded(t *testing.T, l *lab.Lab, b *box, when string) {
	t.Helper()
	if err := l.Capture.Only(l.DNS.Addr.Addr(), l.Addr("good.test"), l.Addr("api.test")); err != nil {
		t.Errorf("%s: %v", when, err)
	}
	for _, r := range l.Web.Requests("") {
		if r.Host != "good.test" && r.Host != "api.test" || strings.HasPrefix(r.URI, "/admin") {
			t.Errorf("%s: %s %s arrived", when, r.Host, r.URI)
		}
	}
	for _, host := range []string{"good.test", "api.test"} {
		opened := openings(t, l, func(p lab.Packet) bool { return p.Dst == l.Addr(host) })
		var recorded []string
		if err := lab.Await(20*time.Second, "records of connections to "+host, func() bool {
			recorded = recorded[:0]
			for _, d := range b.record(host, "allow") {
				if d.Layer != "dns" {
					recorded = append(recorded, d.Time.Format("15:04:05.000"))
				}
			}
			return len(recorded) >= len(opened)
		}); err != nil {
			t.Errorf("%s: %v: %d were opened, %d are recorded:\n%v\n%v", when, err, len(opened), len(recorded), opened, recorded)
		}
	}
}

// openings says when each of these connections was opened from the product's side. A first packet that the machine was too busy
// to answer within a second comes again, from the same port: it opens nothing more.
func openings(t *testing.T, l *lab.Lab, these func(lab.Packet) bool) (times []string) {
	t.Helper()
	if err := l.Capture.Sync(); err != nil {
		t.Fatal(err)
	}
	last := make(map[uint16]time.Time) // by port
	for _, p := range l.Capture.Seen(func(p lab.Packet) bool { return p.FromGate && p.SYN && these(p) }) {
		before, again := last[p.SrcPort]
		last[p.SrcPort] = p.At
		if !again || p.At.Sub(before) > 5*time.Second {
			times = append(times, p.At.UTC().Format("15:04:05.000"))
		}
	}
	return times
}

// record returns all decisions of the sandbox about a host.
func (b *box) record(host, verdict string) []decision {
	b.t.Helper()
	var all []decision
	cursor := ""
	for {
		var page struct {
			Decisions []decision `json:"decisions"`
			Next      *string    `json:"next_cursor"`
		}
		call(b.t, b.p, "GET", "/settings/egress/audit?limit=1000&sandbox_id="+b.ID+"&host="+host+"&verdict="+verdict+cursor, nil, 200, &page)
		all = append(all, page.Decisions...)
		if page.Next == nil {
			return all
		}
		cursor = "&cursor=" + *page.Next
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
