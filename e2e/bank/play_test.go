package bank

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// said is what a step came to, in the sender's words.
type said struct {
	OK      bool   `json:"ok"`
	Outcome string `json:"outcome"`
	Body    string `json:"body"`
	Head    string `json:"head"`
	MS      int64  `json:"ms"`
}

// batch is how many plays one job holds: an answer of execute is a megabyte at most.
const batch = 120

// alike is how many cases about the same host one sandbox plays: more denials than ten that are equal, in a minute, are
// counted in one row of the record, and here each has to be seen.
const alike = 9

// playAll plays everything under one policy, in as few sandboxes as that takes.
func (w *world) playAll(policy string, plays []*play) {
	w.t.Helper()
	own := slices.DeleteFunc(slices.Clone(plays), (*play).attached)
	doors := slices.DeleteFunc(slices.Clone(plays), func(p *play) bool { return !p.attached() })
	for _, part := range [][]*play{own, doors} {
		w.playPart(policy, part)
	}
}

// attached says that the case comes by a door, so that its sandbox is one that somebody else runs.
func (p *play) attached() bool { return p.path == explicit || p.path == socks }

func (w *world) playPart(policy string, plays []*play) {
	w.t.Helper()
	var bins [][]*play
	var counts []map[string]int
	for _, p := range plays {
		key, at := p.target(), 0
		for at < len(bins) && counts[at][key] >= alike {
			at++
		}
		if at == len(bins) {
			bins, counts = append(bins, nil), append(counts, map[string]int{})
		}
		bins[at] = append(bins[at], p)
		if !p.allow {
			counts[at][key]++
		}
	}
	for _, bin := range bins {
		w.playIn(policy, bin)
	}
}

// target is what denials of the case are equal by: the host that it is about. At a door odd targets have no host, so that all
// of their denials are equal.
func (p *play) target() string {
	to := p.to()
	if host, _, _ := strings.Cut(to, ":"); p.attached() && !strings.Contains(host, ".test") {
		return "odd"
	}
	return to
}

func (p *play) to() string {
	for _, s := range p.kase.Do {
		for _, field := range []string{"connect", "dial"} {
			if to, ok := s[field].(string); ok {
				return to
			}
		}
		if ask, ok := s["ask"].(map[string]any); ok {
			return fmt.Sprint(ask["to"])
		}
	}
	return ""
}

// playIn plays everything in one sandbox, and judges it.
func (w *world) playIn(policy string, plays []*play) {
	w.t.Helper()
	make := w.tryBox
	if plays[0].attached() {
		make = w.tryAttach
	}
	b, err := make(policy)
	if err != nil {
		for _, p := range plays {
			p.fault("it was not played: %v", err)
		}
		return
	}
	for chunk := range slices.Chunk(plays, batch) {
		b.play(chunk)
	}
	w.settle()
	record := b.decisions()
	for i, p := range plays {
		// Of what is played one after another, everything until the next one's beginning is its own.
		if p.next = p.end + int64(slack); i+1 < len(plays) && !p.kase.Slow && !plays[i+1].kase.Slow {
			p.next = plays[i+1].start - int64(slack)
		}
		w.judge(p, record)
	}
}

// play runs one job in the sandbox. Slow ones come last.
func (b *box) play(plays []*play) {
	b.w.t.Helper()
	slices.SortStableFunc(plays, func(x, y *play) int { return order(x) - order(y) })
	type job struct {
		ID    string           `json:"id"`
		Path  string           `json:"path"`
		Slow  bool             `json:"slow"`
		Limit int              `json:"limit"`
		Do    []map[string]any `json:"do"`
	}
	byID := map[string]*play{}
	var cases []job
	for _, p := range plays {
		byID[p.mark] = p
		do := filled(p.kase.Do, map[string]string{"{self}": b.addr}).([]map[string]any)
		cases = append(cases, job{p.mark, p.path, p.kase.Slow, p.kase.Limit, do})
	}
	data, err := json.Marshal(map[string]any{"cases": cases, "http": b.http, "socks": b.socks})
	if err != nil {
		b.w.t.Fatal(err)
	}
	r := b.send(data)
	lines := bufio.NewScanner(strings.NewReader(r.Stdout))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var told struct {
			ID    string `json:"id"`
			Start int64  `json:"start"`
			End   int64  `json:"end"`
			Steps []said `json:"steps"`
		}
		if err := json.Unmarshal(lines.Bytes(), &told); err != nil {
			b.w.t.Fatalf("sender said %q: %v", lines.Text(), err)
		}
		p := byID[told.ID]
		p.start, p.end, p.steps = told.Start, told.End, told.Steps
	}
	for _, p := range plays {
		if p.start == 0 {
			p.problems = append(p.problems, fmt.Sprintf("it was not played: exit %d, %s", r.Code, r.Stderr))
		}
	}
}

// send gives a job to the sender: in the sandbox, or, where that is attached, on the machine beside the product.
func (b *box) send(job []byte) result {
	b.w.t.Helper()
	if b.http == nil {
		b.write("/workspace/job.json", job)
		return b.exec(300, "/workspace/sender", "/workspace/job.json")
	}
	file := filepath.Join(b.w.t.TempDir(), "job.json")
	if err := os.WriteFile(file, job, 0o600); err != nil {
		b.w.t.Fatal(err)
	}
	program, err := senderFile()
	if err != nil {
		b.w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", b.w.lab.Gateway.Name, program, file)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Run()
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

func order(p *play) int {
	if p.kase.Slow {
		return 1
	}
	return 0
}
