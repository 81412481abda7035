package bank

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"portreeve.dev/lab"
)

// settle waits until what the plays caused has been seen outside.
func (w *world) settle() {
	w.t.Helper()
	if err := w.lab.Capture.Sync(); err != nil {
		w.t.Fatal(err)
	}
}

// slack is how far the clocks of sandbox and judge may be apart.
const slack = 5 * time.Millisecond

func (p *play) within(at time.Time) bool {
	n := at.UnixNano()
	return n >= p.start-int64(slack) && n < p.next
}

func (p *play) fault(format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

// escaped is a fault that was seen outside: the attack got through.
func (p *play) escaped(format string, args ...any) {
	p.outside = true
	p.fault(format, args...)
}

// judge compares what was seen with what the case names.
func (w *world) judge(p *play, record []decision) {
	if p.start == 0 {
		return
	}
	w.judgeEvil(p)
	w.judgeNames(p)
	w.judgeArrivals(p)
	p.judgeForm()
	w.judgeRecord(p, record)
	if p.kase.Flat > 0 {
		if grown := w.memory.grown(p.start, p.end); grown > p.kase.Flat {
			p.fault("edge grew by %d MiB, more than %d", grown, p.kase.Flat)
		}
	}
	if p.kase.Busy > 0 {
		if took := w.memory.took(p.start, p.end); took > time.Duration(p.kase.Busy)*time.Millisecond {
			p.fault("edge took %v of processor time, more than %d ms", took, p.kase.Busy)
		}
	}
}

// judgeEvil: nothing reaches evil.test, whose recorder and address on the uplink say so.
func (w *world) judgeEvil(p *play) {
	for _, c := range w.lab.Evil.Contacts() {
		if p.within(c.At) && !p.kase.Slow || strings.Contains(c.Bytes, p.mark) {
			p.escaped("evil.test was reached at %v: %.60q", c.To, c.Bytes)
			break
		}
	}
	if p.kase.Slow {
		return
	}
	seen := w.lab.Capture.Seen(func(q lab.Packet) bool {
		return p.within(q.At) && (q.Touches(w.lab.Evil.Addr) || q.Touches(w.lab.Evil.Addr6) || q.Broken)
	})
	if len(seen) > 0 {
		p.escaped("on the uplink: %v", seen[0])
	}
	for _, host := range p.kase.Silent {
		addr, err := netip.ParseAddr(host)
		if err != nil {
			addr = w.lab.Addr(host)
		}
		seen := w.lab.Capture.Seen(func(q lab.Packet) bool { return p.within(q.At) && q.SYN && q.Dst == addr })
		if len(seen) > 0 {
			p.escaped("%s was dialled: %v", host, seen[0])
		}
	}
}

// judgeNames: which names left the machine as questions.
func (w *world) judgeNames(p *play) {
	var asked []string
	for _, q := range w.lab.DNS.Queries("") {
		if p.within(q.At) && !slices.Contains(asked, q.Name) {
			asked = append(asked, q.Name)
		}
	}
	for _, name := range asked {
		never := name == "evil.test" || strings.HasSuffix(name, ".evil.test") || slices.Contains(p.kase.Unasked, name)
		if never && !p.kase.Slow {
			p.escaped("the name server was asked for %s", name)
		}
	}
	for _, name := range p.kase.Asked {
		if !slices.Contains(asked, name) {
			p.fault("the name server was not asked for %s, but for %v", name, asked)
		}
	}
}

// judgeArrivals: the requests that carry the mark, or the packets.
func (w *world) judgeArrivals(p *play) {
	want := 0
	if p.allow {
		want = 1
	}
	if p.kase.Arrives != nil {
		want = *p.kase.Arrives
	}
	if p.kase.Wire != "" {
		addr := w.lab.Addr(p.kase.Wire)
		seen := w.lab.Capture.Seen(func(q lab.Packet) bool { return q.Dst == addr && q.FromGate && q.Says(p.mark) })
		if (len(seen) > 0) != (want > 0) {
			p.escaped("%d packets with the mark went to %s", len(seen), p.kase.Wire)
		}
		return
	}
	var lines []string
	n := 0
	for _, r := range w.lab.Web.Requests("") {
		told := linesOf(r)
		if strings.Contains(strings.Join(told, "\n"), p.mark) {
			n++
			lines = append(lines, told...)
		}
	}
	if n != want && want != whatever {
		p.escaped("%d requests with the mark arrived, want %d: %s", n, want, strings.Join(lines, "; "))
	}
	for _, text := range p.kase.Upstream {
		if re := whole(text); !slices.ContainsFunc(lines, re.MatchString) {
			p.fault("nothing that arrived is %q: %s", text, strings.Join(lines, "; "))
		}
	}
	for _, text := range p.kase.Never {
		re := whole(text)
		if i := slices.IndexFunc(lines, re.MatchString); i >= 0 {
			p.escaped("what arrived has %q", lines[i])
		}
	}
}

// linesOf tells a request line by line.
func linesOf(r lab.Request) []string {
	lines := []string{"proto: " + r.Proto, "method: " + r.Method, "host: " + r.Host, "uri: " + r.URI, "sni: " + r.SNI}
	for name, values := range r.Header {
		for _, v := range values {
			lines = append(lines, "header: "+name+": "+v)
		}
	}
	return append(lines, "body: "+r.Body)
}

func whole(text string) *regexp.Regexp { return regexp.MustCompile(`^(?:` + text + `)$`) }

// judgeForm: what the sandbox was told.
func (p *play) judgeForm() {
	last := p.steps[len(p.steps)-1]
	if !whole(p.kase.Want).MatchString(last.Outcome) {
		p.fault("it came to %q, want %q: %.200q", last.Outcome, p.kase.Want, last.Body)
	}
	if len(p.steps) < len(p.kase.Do) && p.allow {
		p.fault("it ended at step %d", len(p.steps))
	}
	if says := p.kase.Says; says != "" && !regexp.MustCompile(says).MatchString(last.Head+last.Body) {
		p.fault("the answer does not say %q: %q %q", says, last.Head, last.Body)
	}
}

// judgeRecord: how many records deny, and why.
func (w *world) judgeRecord(p *play, record []decision) {
	var denied []decision
	counted := 0 // rows that stand for others, of which some may be repetitions of what has a row
	for _, d := range record {
		mine := p.within(d.Time)
		if p.kase.Slow {
			mine = strings.HasPrefix(d.Host, p.mark+".")
		}
		if !mine || strings.HasPrefix(d.Host, "fence-") {
			continue
		}
		if !w.reasons[d.Reason] {
			p.fault("a record has the reason %q: %v", d.Reason, d)
		}
		if d.Verdict != "allow" {
			denied = append(denied, d)
		}
		if d.Verdict != "allow" && d.Count > 0 {
			counted++
		}
	}
	want := 1
	if p.allow {
		want = 0
	}
	if p.kase.Records != nil {
		want = *p.kase.Records
	}
	if n := len(denied); want != whatever && (n < want && !p.kase.AtMost || n-counted > want) {
		p.fault("%d records deny, want %d: %v", n, want, denied)
		return
	}
	if p.kase.Reason == "" {
		return
	}
	for _, d := range denied {
		if !whole(p.kase.Reason).MatchString(d.Reason) {
			p.fault("it is recorded as %v, want the reason %s", d, p.kase.Reason)
		}
	}
}
