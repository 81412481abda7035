package e2e

import (
	"strings"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// TestOneIdentityOnClearHTTP: what the connection was opened to is what every request on it must say.
func TestOneIdentityOnClearHTTP(t *testing.T) {
	l, p := shared(t)
	ceiling(t, p, allow("clear", "plain.test", "ports", []int{80}, "protocols", []string{"http"}, "methods", []string{"GET"}, "paths", []string{"/open/**"}))
	asked := len(l.DNS.Queries("evil.test"))
	for _, c := range []struct {
		name, target, host, status, reason string
	}{
		{"the same again", "/open/b", "plain.test", "200", ""},
		{"in another spelling", "/open/b", "PLAIN.test.:80", "200", ""},
		{"as an absolute form of the same", "http://plain.test/open/b", "plain.test", "200", ""},
		{"another Host", "/open/b", "evil.test", "403", "identity_mismatch"},
		{"another absolute form", "http://evil.test/open/b", "evil.test", "403", "identity_mismatch"},
		{"another absolute form under the right Host", "http://evil.test/open/b", "plain.test", "400", "parse_error"},
		{"another port", "/open/b", "plain.test:8080", "403", "identity_mismatch"},
		{"the other name as userinfo", "/open/b", "plain.test@evil.test", "400", "parse_error"},
		{"a path that no rule names", "/shut", "plain.test", "403", "no_rule"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := armed(t, p)
			before := len(l.Web.Requests(""))
			_, said := b.hostile("requests", "plain.test:80", "/open/a", "plain.test", c.target, c.host)
			if said != "ok 200 "+c.status {
				t.Errorf("the answers are %q, want 200 and %s", said, c.status)
			}
			arrived := l.Web.Requests("")[before:]
			first := b.decided("allows the first", func(d decision) bool {
				return d.Layer == "http" && d.Path == "/open/a" && d.Verdict == "allow" && d.Closed
			})
			if first.Host != "plain.test" || first.Level != "http" || first.Rule != "clear" || first.Status != 200 {
				t.Errorf("the first is recorded as %+v", first)
			}
			if c.reason == "" {
				b.decided("allows the second", func(d decision) bool { return d.Layer == "http" && d.Path == "/open/b" && d.Verdict == "allow" })
				if len(arrived) != 2 || arrived[1].URI != "/open/b" || arrived[1].Host != "plain.test" {
					t.Errorf("what arrived: %+v", arrived)
				}
				return
			}
			b.decided("denies the second", func(d decision) bool { return d.Layer == "http" && d.Verdict == "deny" && d.Reason == c.reason })
			if len(arrived) != 1 {
				t.Errorf("what arrived: %+v", arrived)
			}
		})
	}
	if n := len(l.DNS.Queries("evil.test")); n != asked {
		t.Errorf("the name server was asked for evil.test %d times", n-asked)
	}
	quiet(t, l, "after all")
}

// TestNeighboursDoNotMeet: a sandbox reaches no other one, whatever its policy says, and not the machine's side of its own link.
func TestNeighboursDoNotMeet(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p)
	put, err := p.API("PUT", "/settings/egress?wait=applied", map[string]any{"rules": []any{map[string]any{
		"id": "all", "action": "allow", "cidrs": []string{"10.200.0.0/16"}, "ports": []int{8000}, "protocols": []string{"tcp"}}}})
	if err != nil || put.Status != 200 {
		t.Fatalf("a rule that names the sandboxes' range: %v %v", put, err)
	}
	catcher, b := armed(t, p), armed(t, p)
	catcher.background("/workspace/hostile catch 8000")
	catcher.works("once it listens", "ls", "/workspace/caught")
	at := catcher.view().Addr + ":8000"
	for _, verb := range []string{"tcp", "udp"} {
		if open, said := catcher.hostile(verb, at); !open || said != "ok caught" {
			t.Errorf("the sandbox itself by %s: %s", verb, said)
		}
		if open, said := b.hostile(verb, at); open {
			t.Errorf("its neighbour by %s: %s", verb, said)
		}
	}
	d := b.decided("denies the neighbour", func(d decision) bool { return d.Port == 8000 && d.Verdict == "deny" })
	if d.Reason != "floor_hard" || d.Addr != catcher.view().Addr {
		t.Errorf("it is recorded as %+v", d)
	}
}

// TestFloorNeedsNoConfiguration runs without any exemption: what is open is what is open on the internet.
func TestFloorNeedsNoConfiguration(t *testing.T) {
	t.Parallel()
	l := lab.Start(t, lab.Options{})
	l.DNS.Set("cgnat.test", lab.At(mustAddr("100.64.0.1")))
	l.DNS.Set("ula.test", lab.At(mustAddr("fd00::1"), mustAddr("172.16.0.1")))
	l.DNS.Set("alibaba.test", lab.At(mustAddr("100.100.100.200")))
	l.DNS.Set("synthetic.test", lab.At(mustAddr("198.18.0.1")))
	l.DNS.Set("two.test", lab.At(mustAddr("192.168.1.1"), l.Addr("public.test")))
	p := l.StartProduct(t, lab.ProductOptions{NoExemption: true, Config: small})
	names := map[string]string{
		"public.test": "", "two.test": "",
		"good.test": "floor_soft", "private.test": "floor_soft", "cgnat.test": "floor_soft", "ula.test": "floor_soft",
		"loopback.test": "floor_hard", "metadata.test": "floor_hard", "alibaba.test": "floor_hard", "synthetic.test": "floor_hard",
	}
	var rules []map[string]any
	for name := range names {
		rules = append(rules, allow("r-"+strings.TrimSuffix(name, ".test"), name))
	}
	ceiling(t, p, rules...)
	b := armed(t, p)
	for name, reason := range names {
		open, said := b.hostile("tls", name+":443", name, name, "/")
		if open != (reason == "") {
			t.Errorf("%s: %s", name, said)
		}
		if reason != "" {
			b.decided("denies "+name, func(d decision) bool { return d.Host == name && d.Verdict == "deny" && d.Reason == reason })
		}
	}
	if err := l.Capture.Only(l.DNS.Addr.Addr(), l.Addr("public.test")); err != nil {
		t.Error(err)
	}
}

// TestStalePolicyClosesTheDoor stops control, so that nobody vouches for the policy any more. The judge is the web server: what
// arrives there must end within the ten seconds that a policy stays fresh.
func TestStalePolicyClosesTheDoor(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	ceiling(t, p, allow("good", "good.test"), allow("echo", "tcp.test", "ports", []int{7}, "protocols", []string{"tcp"}))
	b := armed(t, p)
	b.background("while :; do /workspace/hostile tls good.test:443 good.test good.test /; sleep 0.2; done")
	b.background("/workspace/hostile hold tcp.test:7")
	arriving := func() bool {
		seen := l.Web.Requests("good.test")
		return len(seen) > 0 && time.Since(seen[len(seen)-1].At) < 700*time.Millisecond && l.TCP.Connections() == 1
	}
	if err := lab.Await(10*time.Second, "traffic while control lives", arriving); err != nil {
		t.Fatal(err)
	}
	control, err := p.Kill("control", sigStop)
	if err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	if err := lab.Await(20*time.Second, "silence with control stopped", func() bool {
		seen := l.Web.Requests("good.test")
		return time.Since(seen[len(seen)-1].At) > 3*time.Second
	}); err != nil {
		t.Error(err)
	}
	seen := l.Web.Requests("good.test")
	if last := seen[len(seen)-1].At.Sub(stopped); last < 2*time.Second || last > 11*time.Second {
		t.Errorf("the last request arrived %v after control stopped", last)
	}
	if n := l.TCP.Connections(); n != 0 {
		t.Errorf("%d connections are open under a policy that nobody vouches for", n)
	}
	if _, err := p.Kill("control", sigCont); err != nil {
		t.Fatal(err)
	}
	if err := lab.Await(10*time.Second, "traffic once control goes on", func() bool {
		seen := l.Web.Requests("good.test")
		return time.Since(seen[len(seen)-1].At) < time.Second
	}); err != nil {
		t.Error(err)
	}
	if now, err := p.PID("control"); err != nil || now != control {
		t.Errorf("control is %d, %v, it was %d", now, err, control)
	}
	b.decided("says stale_policy", func(d decision) bool { return d.Reason == "stale_policy" })
}
