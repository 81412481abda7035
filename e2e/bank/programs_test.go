package bank

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"portreeve.dev/lab"
)

// saves calls the API and judges what it says.
func (w *world) saves(r *row, v *verdict) {
	for _, allow := range []bool{false, true} {
		calls := r.DenySave
		if allow {
			calls = r.AllowSave
		}
		for _, c := range calls {
			problem := ""
			answer, err := w.p.API(c.Method, c.Path, c.Body)
			switch {
			case err != nil:
				problem = err.Error()
			case answer.Status != c.Want || !regexp.MustCompile(c.Says).Match(answer.Body):
				problem = fmt.Sprintf("%v, want %d and %q", answer, c.Want, c.Says)
			}
			v.add(allow, fmt.Sprintf("%s %q", r.ID, c.Name), problem)
		}
	}
}

// A check is one judgement of a program.
type check func(allow bool, name, problem string)

// programs play what needs more than the bytes of one sandbox.
var programs = map[string]func(w *world, done check){
	"asleep":    asleep,
	"flips":     flips,
	"kernel":    kernelSets,
	"leaf-keys": leafKeys,
	"rebound":   rebound,
	"reuse":     reuse,
	"scan":      scanned,
	"tightened": tightened,
	"toolchain": toolchain,
}

func (w *world) program(r *row, v *verdict) {
	if r.Program == "" {
		return
	}
	run := programs[r.Program]
	if run == nil {
		v.problems = append(v.problems, fmt.Sprintf("%s: no program %q", r.ID, r.Program))
		return
	}
	run(w, func(allow bool, name, problem string) { v.add(allow, r.ID+" "+name, problem) })
}

// says plays steps in the sandbox and returns what the last one came to, with when it began.
func (b *box) says(limit int, steps ...map[string]any) (string, int64) {
	b.w.t.Helper()
	p := &play{row: &row{ID: "P"}, mark: fmt.Sprintf("mark-p-%dz", time.Now().UnixNano()), path: transparent, kase: kase{Do: steps, Limit: limit}}
	if b.http != nil {
		p.path = explicit
	}
	b.play([]*play{p})
	if len(p.steps) == 0 {
		return strings.Join(p.problems, "; "), 0
	}
	return p.steps[len(p.steps)-1].Outcome, p.start
}

func unless(ok bool, format string, args ...any) string {
	if ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// tightened: a rule is taken away while two connections live. The one that it allowed ends, the others don't.
func tightened(w *world, done check) {
	policy := func(hosts ...string) map[string]any {
		return map[string]any{"rules": []any{map[string]any{"id": "held", "action": "allow", "hosts": hosts, "ports": []int{7, 8080}, "protocols": []string{"tcp"}}}}
	}
	w.call("PUT", "/policies/tightened", policy("tcp.test", "other.wild.test", "port.test"), 200, nil)
	b, other := w.under("tightened"), w.box("web")
	hold := func(b *box, to, word string, out *string, wait *sync.WaitGroup) {
		wait.Go(func() {
			*out, _ = b.says(9000, map[string]any{"connect": to}, map[string]any{"send": word + "\n"}, map[string]any{"read": "line"}, map[string]any{"read": "end"})
		})
	}
	var gone, kept, neighbour string
	var wait sync.WaitGroup
	hold(b, "tcp.test:7", "flow-gone", &gone, &wait)
	hold(other, "tcp.test:7", "flow-neighbour", &neighbour, &wait)
	for _, word := range []string{"flow-gone", "flow-neighbour"} {
		if _, err := w.lab.Capture.Await(10*time.Second, func(q lab.Packet) bool { return q.FromGate && q.Says(word) }); err != nil {
			done(false, "a connection to begin with", err.Error())
		}
	}
	start := time.Now()
	w.call("PUT", "/policies/tightened?wait=applied", policy("port.test"), 200, nil)
	applied := time.Since(start)
	closed := lab.Await(5*time.Second, "a connection less", func() bool { return w.lab.TCP.Connections() == 1 })
	took := time.Since(start)
	done(false, "what the rule allowed ends within 2 s", unless(closed == nil && took < 2*time.Second, "%v after %v (applied after %v)", closed, took, applied))
	left := w.lab.TCP.Connections()
	done(true, "the neighbour's lives on", unless(left == 1, "%d connections are left", left))
	wait.Wait()
	_ = kept
	done(false, "the sandbox sees its end", unless(strings.HasPrefix(gone, "reset") || strings.HasPrefix(gone, "eof"), "it saw %q", gone))
	done(true, "the neighbour does not", unless(strings.HasPrefix(neighbour, "timeout"), "it saw %q", neighbour))
	again, _ := b.says(3000, map[string]any{"connect": "tcp.test:7"})
	done(false, "a new one is refused", unless(again == "nxdomain" || again == "reset", "it came to %q", again))
}

// asleep: a rule is taken away while a sandbox is paused. Once it runs again, neither the connection that the rule had allowed
// nor a new one gets through.
func asleep(w *world, done check) {
	policy := func(hosts ...string) map[string]any {
		return map[string]any{"rules": []any{map[string]any{"id": "now", "action": "allow", "hosts": hosts, "ports": []int{7, 443}, "protocols": []string{"tcp", "https", "tls"}}}}
	}
	w.call("PUT", "/policies/asleep?wait=applied", policy("tcp.test", "good.test", "more.test"), 200, nil)
	b := w.under("asleep")
	ask := func(host, word string) string {
		came, _ := b.says(5000, map[string]any{"ask": map[string]any{"to": host + ":443", "target": "/" + word}})
		return came
	}
	came := ask("good.test", "asleep-first")
	done(true, "a request before the pause", unless(came == "200", "it came to %q", came))
	b.exec(20, "sh", "-c", "((echo flow-asleep; sleep 1000) | nc tcp.test 7) >/dev/null 2>&1 &")
	_, err := w.lab.Capture.Await(10*time.Second, func(q lab.Packet) bool { return q.FromGate && q.Says("flow-asleep") })
	done(true, "a connection to begin with", unless(err == nil, "%v", err))
	w.call("POST", "/sandbox/"+b.id+"/pause", nil, 200, nil)
	w.call("PUT", "/policies/asleep?wait=applied", policy("more.test"), 200, nil)
	w.call("POST", "/sandbox/"+b.id+"/resume", nil, 200, nil)
	came = ask("good.test", "asleep-denied")
	done(false, "what the rule allowed is refused after the pause", unless(came == "nxdomain" || came == "reset" || strings.HasPrefix(came, "alert"), "it came to %q", came))
	came, _ = b.says(3000, map[string]any{"connect": "tcp.test:7"})
	done(false, "a new connection too", unless(came == "nxdomain" || came == "reset", "it came to %q", came))
	err = lab.Await(5*time.Second, "the end of the connection from before", func() bool { return w.lab.TCP.Connections() == 0 })
	done(false, "the connection from before has ended", unless(err == nil, "%v", err))
	came = ask("more.test", "asleep-last")
	done(true, "what is still allowed", unless(came == "200", "it came to %q", came))
	arrived := 0
	for _, q := range w.lab.Web.Requests("good.test") {
		arrived += strings.Count(q.URI, "asleep-denied")
	}
	done(false, "nothing of it arrived", unless(arrived == 0, "%d requests did", arrived))
}

// under makes a sandbox under a policy that is there already.
func (w *world) under(policy string) *box {
	w.t.Helper()
	return w.arm(map[string]any{"template": "tiny", "memory": "512Mi", "cpus": "2", "policy": policy})
}

// flips: a policy changes back and forth between two hosts while both are asked for. What arrives is what was recorded as
// allowed, and each record names a version under which it is right.
func flips(w *world, done check) {
	policy := func(host string) map[string]any {
		return map[string]any{"rules": []any{map[string]any{"id": "now", "action": "allow", "hosts": []string{host}, "protocols": []string{"http"}}}}
	}
	hosts := []string{"even.wild.test", "odd.wild.test"}
	w.call("PUT", "/policies/flips", policy(hosts[1]), 200, nil)
	b := w.under("flips")
	var steps []map[string]any
	for range 60 {
		for _, host := range hosts {
			steps = append(steps, map[string]any{"ask": map[string]any{"to": host + ":80", "clear": true, "target": "/flip"}})
		}
	}
	var plays []*play
	for i, s := range steps {
		plays = append(plays, &play{row: &row{ID: "P"}, mark: fmt.Sprintf("flip-%dz", i), path: transparent, kase: kase{Do: []map[string]any{s}, Limit: 3000}})
	}
	before := len(w.lab.Web.Requests(hosts[0])) + len(w.lab.Web.Requests(hosts[1]))
	stop := make(chan struct{})
	var wait sync.WaitGroup
	changed := 0
	wait.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if answer, err := w.p.API("PUT", "/policies/flips?wait=applied", policy(hosts[i%2])); err == nil && answer.Status == 200 {
					changed++
				}
			}
		}
	})
	b.play(plays)
	close(stop)
	wait.Wait()
	arrived := len(w.lab.Web.Requests(hosts[0])) + len(w.lab.Web.Requests(hosts[1])) - before
	allowed, wrong := 0, ""
	for _, d := range b.decisions() {
		if d.Host != hosts[0] && d.Host != hosts[1] || d.Verdict != "allow" {
			continue
		}
		if d.Layer == "http" {
			allowed++
		}
		// Version 1 is for the odd one, and each change goes to the other.
		if right := hosts[int(d.Version)%2]; d.Host != right {
			wrong = fmt.Sprintf("version %d allowed %s", d.Version, d.Host)
		}
	}
	done(false, "no version allows the other's host", unless(wrong == "" && changed > 5, "%s after %d changes", wrong, changed))
	done(true, "some of it arrives, and nothing that was not allowed", unless(arrived <= allowed && arrived > 0, "%d arrived, %d are recorded", arrived, allowed))
}

// rebound: a name whose answers take turns is asked for a thousand times. One of them is the gateway's own API.
func rebound(w *world, done check) {
	came, _ := w.box("all").says(5000, map[string]any{"ask": map[string]any{"to": "rebound.test:8080", "host": "rebound.test:8080", "target": "/rebound", "again": 1000}})
	others := regexp.MustCompile(`(^|, )(200|reset|eof|alert: [a-z ]+) \d+`).ReplaceAllString(came, "")
	done(false, "a thousand tries, none of which reached the gateway", unless(others == "", "they came to %q", came))
	done(true, "the open answer is served", unless(strings.Contains(came, "200 "), "they came to %q", came))
}

// reuse: while the address of the last sandbox rests, the next one has another, verdicts of its own, and no connection of the
// last one's. That the address itself comes back clean, two minutes later, is for a test that fills a small range.
func reuse(w *world, done check) {
	last := w.box("web")
	var wait sync.WaitGroup
	wait.Go(func() {
		w.p.API("POST", "/sandbox/"+last.id+"/execute", map[string]any{"command": []string{"sh", "-c", "(echo flow-last; sleep 60) | nc tcp.test 7"}, "timeout": 30_000})
	})
	_, err := w.lab.Capture.Await(10*time.Second, func(q lab.Packet) bool { return q.FromGate && q.Says("flow-last") })
	done(true, "a connection to begin with", unless(err == nil, "%v", err))
	w.call("DELETE", "/sandbox/"+last.id, nil, 200, nil)
	wait.Wait()
	err = lab.Await(5*time.Second, "the end of the deleted sandbox's connections", func() bool { return w.lab.TCP.Connections() == 0 })
	done(false, "a deleted sandbox's connection ends", unless(err == nil, "%v", err))
	next := w.box("empty")
	done(false, "the next one has another address, as that one rests", unless(next.addr != last.addr, "both had %s", next.addr))
	came, _ := next.says(3000, map[string]any{"ask": map[string]any{"to": "good.test:443"}})
	done(false, "and its own policy", unless(came == "nxdomain", "it came to %q", came))
	came, _ = w.box("web").says(3000, map[string]any{"ask": map[string]any{"to": "good.test:443"}})
	done(true, "one under the old policy is served", unless(came == "200", "it came to %q", came))
}

// kernelSets: the kernel's own tables know the sandboxes that there are, and none that is gone.
func kernelSets(w *world, done check) {
	first, second := w.box("web"), w.box("web")
	knows := func(b *box) bool {
		r := w.p.InEdge("nft", "list", "ruleset")
		if r.Code != 0 {
			w.t.Fatalf("listing the rules: %v", r)
		}
		return regexp.MustCompile(`\b` + regexp.QuoteMeta(b.addr) + `\b`).MatchString(r.Stdout)
	}
	done(true, "both are known", unless(knows(first) && knows(second), "%v and %v", knows(first), knows(second)))
	w.call("DELETE", "/sandbox/"+first.id, nil, 200, nil)
	done(false, "one that was deleted is not", unless(!knows(first), "%s is", first.addr))
	done(true, "its neighbour is", unless(knows(second), "%s is not", second.addr))
	came, _ := second.says(3000, map[string]any{"ask": map[string]any{"to": "good.test:443"}})
	done(true, "and is served", unless(came == "200", "it came to %q", came))
	if r := w.p.InEdge("nft", "flush", "set", "inet", "portreeve", "bound"); r.Code != 0 {
		done(false, "a sandbox that the kernel lost", fmt.Sprint(r))
		return
	}
	came, _ = second.says(3000, map[string]any{"ask": map[string]any{"to": "good.test:443"}})
	done(false, "a sandbox that the kernel lost reaches nothing", unless(came != "200", "it came to %q", came))
	old, err := w.p.Kill("node", syscall.SIGKILL)
	if err == nil {
		err = w.p.AwaitRestart("node", old, 15*time.Second)
	}
	if err == nil {
		err = lab.Await(15*time.Second, "the sandbox in the kernel's set", func() bool { return knows(second) })
	}
	done(true, "the next node compares, and puts it back", unless(err == nil, "%v", err))
}

// scanned: a neighbour tries every port of a sandbox that listens, and all of the addresses around.
func scanned(w *world, done check) {
	victim, scanner := w.box("web"), w.box("flood")
	var wait sync.WaitGroup
	wait.Go(func() {
		w.p.API("POST", "/sandbox/"+victim.id+"/execute", map[string]any{"command": []string{"sh", "-c", "while :; do echo caught | nc -l -p 8000; done"}, "timeout": 30_000})
	})
	heard := lab.Await(10*time.Second, "a listener", func() bool {
		said, _ := victim.says(1000, map[string]any{"dial": victim.addr + ":8000"}, map[string]any{"read": "line"})
		return said == "caught"
	})
	done(true, "the port is open to its own sandbox", unless(heard == nil, "%v", heard))
	scan := func(to string, first, last int) string {
		said, _ := scanner.says(20000, map[string]any{"scan": map[string]any{"to": to, "first": first, "last": last}})
		return said
	}
	said := scan(victim.addr, 7990, 8010)
	done(false, "its ports", unless(!strings.Contains(said, "open"), "they are %s", said))
	base := victim.addr[:strings.LastIndexByte(victim.addr, '.')+1]
	open := ""
	for host := 1; host < 30; host += 4 {
		if said := scan(fmt.Sprint(base, host), 8000, 8000); strings.Contains(said, "open") {
			open = fmt.Sprint(base, host, " ", said)
		}
	}
	done(false, "the addresses around", unless(open == "", "%s", open))
	said = scan(victim.addr, 1, 1500)
	done(false, "a flood of openings", unless(!strings.Contains(said, "open"), "they are %s", said))
	came, _ := victim.says(3000, map[string]any{"ask": map[string]any{"to": "good.test:443"}})
	done(true, "the scanned one is served meanwhile", unless(came == "200", "it came to %q", came))
	w.p.API("DELETE", "/sandbox/"+victim.id, nil)
	wait.Wait()
}

// leafKeys: the same host under the same authority has other keys after edge was started again.
func leafKeys(w *world, done check) {
	b := w.box("web")
	leaf := func() map[string]string {
		p := &play{row: &row{ID: "P"}, mark: "leafz", path: transparent, kase: kase{Do: []map[string]any{{"connect": "api.test:443"}, {"tls": map[string]any{"sni": "api.test"}}}, Limit: 5000}}
		b.play([]*play{p})
		told := map[string]string{"outcome": p.steps[len(p.steps)-1].Outcome}
		for _, line := range strings.Split(p.steps[len(p.steps)-1].Head, "\r\n") {
			name, value, _ := strings.Cut(line, ": ")
			told[name] = value
		}
		return told
	}
	first := leaf()
	old, err := w.p.Kill("edge", syscall.SIGKILL)
	if err == nil {
		err = w.p.AwaitRestart("edge", old, 15*time.Second)
	}
	if err != nil {
		done(false, "another edge", err.Error())
		return
	}
	second := leaf()
	err = lab.Await(15*time.Second, "a handshake after that", func() bool { second = leaf(); return second["key"] != "" })
	done(true, "a handshake before and after", unless(err == nil && first["key"] != "", "%v; %v then %v", err, first, second))
	done(false, "keys differ", unless(first["key"] != second["key"], "both are %s", first["key"]))
	done(false, "serials differ", unless(first["serial"] != second["serial"], "both are %s", first["serial"]))
	w.edge, _ = w.p.PID("edge")
}
