package e2e

import (
	"strings"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// TestPolicyDecidesWhatIsReached has pairs: each denial stands beside a case that differs in one thing and is allowed.
func TestPolicyDecidesWhatIsReached(t *testing.T) {
	l, p := shared(t)
	ceiling(t, p,
		allow("good", "good.test"),
		allow("clear", "plain.test", "ports", []int{80}, "protocols", []string{"http"}, "methods", []string{"GET"}, "paths", []string{"/open/**"}),
		allow("wild", "*.wild.test"),
		allow("echo", "tcp.test", "ports", []int{7, 22}, "protocols", []string{"tcp", "ssh"}),
		allow("api", "api.test"),
		map[string]any{"id": "not-api", "action": "deny", "hosts": []string{"api.test"}, "message": "use good.test"},
	)
	b := armed(t, p)
	for _, c := range []struct {
		name string
		args string
		open bool
	}{
		{"a named host", "tls good.test:443 good.test good.test /", true},
		{"a host that no rule names", "tls evil.test:443 evil.test evil.test /", false},
		{"a port that no rule names", "tls good.test:8443 good.test good.test /", false},
		{"a host under a wildcard", "tls one.wild.test:443 one.wild.test one.wild.test /", true},
		{"the wildcard's own name", "tls wild.test:443 wild.test wild.test /", false},
		{"a path that a rule names", "http plain.test:80 plain.test /open/a", true},
		{"a path that none names", "http plain.test:80 plain.test /shut", false},
		{"a path that only looks like it", "http plain.test:80 plain.test /open/../shut", false},
		{"another Host on the same connection", "http plain.test:80 evil.test /open/a", false},
		{"another SNI", "tls good.test:443 evil.test good.test /", false},
		{"no SNI", "tls good.test:443  good.test /", false},
		{"plain TCP that a rule names", "tcp tcp.test:7", true},
		{"a server that speaks first", "tcp tcp.test:22", true},
		{"plain TCP to a host for HTTPS", "tcp good.test:443", false},
		{"a denied host that is allowed too", "tls api.test:443 api.test api.test /", false},
		{"an address", "tls 203.0.113.10:443 good.test good.test /", false},
		{"an address of the synthetic range without a name", "tcp 198.18.255.254:443", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.t = t
			open, said := b.hostile(strings.Split(c.args, " ")...)
			// Over clear HTTP a denial is an answer of ours.
			if strings.HasPrefix(c.args, "http ") && strings.Contains(said, " 403 ") {
				open = false
			}
			if open != c.open {
				t.Errorf("got through: %v, want %v: %s", open, c.open, said)
			}
		})
	}
	if err := l.Capture.Quiet(l.Evil.Addr, l.Evil.Addr6); err != nil {
		t.Error(err)
	}
	if err := l.Capture.Unspoken("evil.test"); err != nil {
		t.Error(err)
	}
}

func TestDecisionIsWrittenForEachVerdict(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p, allow("good", "good.test"))
	b := armed(t, p)
	if open, said := b.hostile("tls", "good.test:443", "good.test", "good.test", "/"); !open {
		t.Fatal(said)
	}
	b.hostile("tls", "evil.test:443", "evil.test", "evil.test", "/")
	d := b.decided("allows good.test and is closed", func(d decision) bool { return d.Host == "good.test" && d.Layer == "connect" && d.Closed })
	if d.Verdict != "allow" || d.Rule != "good" || d.Addr != "203.0.113.10" || d.Port != 443 || d.Level != "sni" || d.In == 0 || d.Out == 0 {
		t.Errorf("the allowed connection is recorded as %+v", d)
	}
	d = b.decided("denies evil.test", func(d decision) bool { return d.Host == "evil.test" })
	if d.Verdict != "deny" || d.Reason != "no_rule" {
		t.Errorf("the denied name is recorded as %+v", d)
	}
	if r := p.CLI("explain", d.ID); r.Code != 0 || !strings.Contains(r.Stdout, "evil.test") {
		t.Errorf("explain: %v", r)
	}
}

// TestFloorHoldsWhateverTheNameSays allows each name by policy; what it leads to is closed all the same.
func TestFloorHoldsWhateverTheNameSays(t *testing.T) {
	l, p := shared(t)
	names := []string{"loopback.test", "metadata.test", "private.test", "zero.test"}
	rules := []map[string]any{allow("twin", "alias.test")}
	for _, name := range names {
		rules = append(rules, allow("r-"+strings.TrimSuffix(name, ".test"), name, "ports", []int{443}, "protocols", []string{"https", "tls", "tcp"}))
	}
	ceiling(t, p, rules...)
	b := armed(t, p)
	for _, name := range names {
		if open, said := b.hostile("tls", name+":443", name, name, "/"); open {
			t.Errorf("%s was reached: %s", name, said)
		}
		d := b.decided("denies "+name+" by the floor", func(d decision) bool {
			return d.Host == name && d.Verdict == "deny" && strings.HasPrefix(d.Reason, "floor")
		})
		if d.Addr == "" {
			t.Errorf("%s: the decision names no address: %+v", name, d)
		}
	}
	// An answer in the form of an IPv6 address is none where nothing goes out by IPv6, whatever it holds.
	ceiling(t, p, append(rules, allow("mapped", "mapped.test"))...)
	if open, said := b.hostile("tls", "mapped.test:443", "mapped.test", "mapped.test", "/"); open {
		t.Errorf("mapped.test was reached: %s", said)
	}
	d := b.decided("is about mapped.test and closed", func(d decision) bool { return d.Host == "mapped.test" && d.Closed })
	if d.Error != "resolve_no_address" {
		t.Errorf("mapped.test: %+v", d)
	}
	// The same kind of name, leading to an address that is open: refused only by the certificate's name, if at all.
	if open, said := b.hostile("tls", "alias.test:443", "alias.test", "alias.test", "/"); !open {
		t.Errorf("an alias of an open address: %s", said)
	}
	if err := l.Capture.Only(l.DNS.Addr.Addr(), l.Addr("good.test"), l.Addr("api.test"), l.Addr("one.wild.test"), l.Addr("plain.test"), l.Addr("tcp.test")); err != nil {
		t.Error(err)
	}
}

// TestReboundNameIsJudgedEachTime uses a name whose answers alternate between an open address and loopback.
func TestReboundNameIsJudgedEachTime(t *testing.T) {
	_, p := shared(t)
	ceiling(t, p, allow("rebind", "rebind.test"))
	b := armed(t, p)
	through := 0
	for range 6 {
		if open, _ := b.hostile("tls", "rebind.test:443", "rebind.test", "rebind.test", "/"); open {
			through++
		}
	}
	b.decided("denies the loopback answer", func(d decision) bool {
		return d.Host == "rebind.test" && d.Reason == "floor_hard" && d.Addr == "127.0.0.1"
	})
	reached, refused, denied := 0, 0, 0
	for _, d := range b.decisions() {
		switch {
		case d.Host != "rebind.test" || d.Layer == "dns":
		case d.Verdict == "deny" && d.Reason == "floor_hard":
			denied++
		case d.Addr == "203.0.113.10":
			reached++
		case d.Addr == "" && d.Error == "floor_hard" && d.In == 0:
			refused++ // by name it was allowed; what the name led to was not
		default:
			t.Errorf("a connection went elsewhere: %+v", d)
		}
	}
	if reached != through || refused != 6-through || denied != refused {
		t.Errorf("of 6 connections %d got through, but %d are recorded as reached, %d as refused, %d as denied", through, reached, refused, denied)
	}
	if through == 0 || through == 6 {
		t.Errorf("%d of 6 connections got through, want those with the open answer", through)
	}
}

func TestNoQueryOfASandboxLeavesTheMachine(t *testing.T) {
	l, p := shared(t)
	ceiling(t, p, allow("good", "good.test"))
	b := armed(t, p)
	before := len(l.DNS.Queries("good.test"))
	for _, server := range []string{"8.8.8.8", "203.0.113.53", "198.51.100.66"} {
		open, said := b.hostile("dns", server, "good.test")
		if !open || !strings.Contains(said, " 198.1") {
			t.Errorf("asking %s: %s, want a synthetic address", server, said)
		}
	}
	if n := len(l.DNS.Queries("good.test")); n != before {
		t.Errorf("%d queries reached the name server before anything was dialled", n-before)
	}
	if open, said := b.hostile("dns", "8.8.8.8", "evil.test"); open {
		t.Errorf("a denied name has an address: %s", said)
	}
	if err := l.Capture.Unspoken("evil.test"); err != nil {
		t.Error(err)
	}
}

func TestTightenedPolicyEndsFlows(t *testing.T) {
	l, p := shared(t)
	ceiling(t, p, allow("echo", "tcp.test", "ports", []int{7}, "protocols", []string{"tcp"}))
	b := sandbox(t, p)
	done := make(chan result, 1)
	go func() {
		// nc holds the connection until the other side ends it.
		answer, err := p.API("POST", "/sandbox/"+b.ID+"/execute", map[string]any{"command": []string{"sh", "-c", "sleep 60 | nc tcp.test 7"}, "timeout": 50_000})
		var r result
		if err != nil || answer.Into(&r) != nil {
			r.Code = -1
		}
		done <- r
	}()
	b.decided("allows the flow", func(d decision) bool { return d.Host == "tcp.test" && d.Verdict == "allow" && d.Layer == "connect" })
	if err := lab.Await(10*time.Second, "open flow", func() bool { return l.TCP.Connections() > 0 }); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	ceiling(t, p)
	b.decided("closes the flow", func(d decision) bool { return d.Host == "tcp.test" && d.Closed })
	if took := time.Since(start); took > 4*time.Second {
		t.Errorf("the flow ended %v after the policy", took)
	}
	b.exec("killall", "sleep")
	<-done
}

func TestProbeFindsNoWayOut(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	if err := l.Capture.Forget(); err != nil {
		t.Fatal(err)
	}
	if r := p.CLI("probe"); r.Code != 0 {
		t.Errorf("probe: %v", r)
	}
	if err := l.Capture.Only(); err != nil {
		t.Error(err)
	}
}
