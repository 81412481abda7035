package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// A recording is a sandbox whose requests have numbers, so that what its upstream saw and what the record says can be compared.
type recording struct {
	*box
	lab  *lab.Lab
	addr string // of plain.test, as the sandbox knows it
	n    int
}

func startRecording(t *testing.T, l *lab.Lab, p *lab.Product) *recording {
	t.Helper()
	ceiling(t, p, allow("clear", "plain.test", "ports", []int{80}, "protocols", []string{"http"}), allow("echo", "tcp.test", "ports", []int{7}, "protocols", []string{"tcp"}))
	r := &recording{box: armed(t, p), lab: l}
	_, said := r.hostile("resolve", "plain.test")
	r.addr = strings.TrimPrefix(said, "ok ")
	return r
}

// ask sends one request, and returns its path and what came back.
func (r *recording) ask() (path, said string) {
	r.t.Helper()
	r.n++
	path = "/n/" + strconv.Itoa(r.n)
	_, said = r.hostile("http", r.addr+":80", "plain.test", path)
	return path, said
}

// allowed wants requests to get through again, without anybody's help.
func (r *recording) allowed(when string) {
	r.t.Helper()
	var last string
	if err := lab.Await(40*time.Second, "request that gets through "+when, func() bool {
		_, last = r.ask()
		return strings.Contains(last, " 200 ")
	}); err != nil {
		r.t.Fatalf("%v: %s", err, last)
	}
}

// flowing wants more requests of a program in the background to get through.
func (r *recording) flowing(when string) {
	r.t.Helper()
	some := len(r.arrived())
	if err := lab.Await(30*time.Second, "traffic "+when, func() bool { return len(r.arrived()) > some+5 }); err != nil {
		r.t.Fatal(err)
	}
}

// refused wants five requests to be refused for a reason, and before each the world to be made bad.
func (r *recording) refused(when, reason string, before func()) {
	r.t.Helper()
	got := 0
	var last string
	if err := lab.Await(60*time.Second, "refusals "+when, func() bool {
		before()
		path, said := r.ask()
		last = said
		if strings.Contains(said, " 503 ") && strings.Contains(said, reason) {
			got++
			if r.arrived()[path] {
				r.t.Errorf("%s: %s was refused, and reached its upstream", when, path)
			}
		}
		return got >= 5
	}); err != nil {
		r.t.Fatalf("%v: %d, the last answer was %s", err, got, last)
	}
}

// arrived are the paths that the upstream saw.
func (r *recording) arrived() map[string]bool {
	all := map[string]bool{}
	for _, q := range r.lab.Web.Requests("plain.test") {
		all[q.URI] = true
	}
	return all
}

// recorded are the paths of allowed decisions, and how often each is there.
func (r *recording) recorded() map[string]int {
	r.t.Helper()
	all := map[string]int{}
	cursor := ""
	for {
		var page struct {
			Decisions []decision `json:"decisions"`
			Next      *string    `json:"next_cursor"`
		}
		call(r.t, r.p, "GET", "/decisions?limit=1000&verdict=allow&sandbox_id="+r.ID+cursor, nil, 200, &page)
		for _, d := range page.Decisions {
			if d.Layer == "http" {
				all[d.Path]++
			}
			if d.Layer != "dns" && d.Level == "" {
				r.t.Errorf("decision %s has no level", d.ID)
			}
		}
		if page.Next == nil {
			return all
		}
		cursor = "&cursor=" + *page.Next
	}
}

// complete wants a decision behind every contact with the upstream but those that an org let go on unrecorded.
func (r *recording) complete(but ...string) {
	r.t.Helper()
	missing := func() (all []string) {
		record := r.recorded()
		for path := range r.arrived() {
			if record[path] == 0 && !slices.Contains(but, path) {
				all = append(all, path)
			}
		}
		return all
	}
	if err := lab.Await(20*time.Second, "complete record", func() bool { return len(missing()) == 0 }); err != nil {
		r.t.Errorf("%v: of %d requests that arrived these have no decision: %v", err, len(r.arrived()), missing())
	}
	for path, n := range r.recorded() {
		if n != 1 {
			r.t.Errorf("%s has %d decisions", path, n)
		}
	}
}

// recordHealth is what GET /decisions/health says.
type recordHealth struct {
	Mode  string `json:"mode"`
	Lost  uint64 `json:"lost"`
	Nodes []struct {
		State   string `json:"state"`
		Written uint64 `json:"written"`
		Shipped uint64 `json:"shipped"`
		Lost    uint64 `json:"lost"`
		Unsure  uint64 `json:"unsure"`
	} `json:"nodes"`
}

func (r *recording) health() (h recordHealth) {
	r.t.Helper()
	call(r.t, r.p, "GET", "/decisions/health", nil, 200, &h)
	return h
}

// inside runs a command where the product sees its mounts.
func inside(t *testing.T, p *lab.Product, args ...string) {
	t.Helper()
	pid, err := p.PID("supervisor")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(pid), "-m"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
}

// seen is a path as the product sees it.
func seen(t *testing.T, p *lab.Product, path string) string {
	t.Helper()
	pid, err := p.PID("supervisor")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join("/proc", strconv.Itoa(pid), "root", path)
}

func spoolOf(p *lab.Product) string { return filepath.Join(p.State, "edge", "spool") }

func restart(t *testing.T, p *lab.Product, role string) {
	t.Helper()
	old, err := p.Kill(role, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AwaitRestart(role, old, 30*time.Second); err != nil {
		t.Fatal(err)
	}
}

// smallDisk mounts a disk of its own over a folder, for the role whose folder it is.
func smallDisk(t *testing.T, p *lab.Product, dir, size, role string) {
	t.Helper()
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	inside(t, p, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%s,mode=0700,uid=%d,gid=%d", size, owner.Uid, owner.Gid), "tmpfs", dir)
	t.Cleanup(func() { p.Kill(role, syscall.SIGKILL) }) // it holds the disk
}

// TestFullDiskClosesAndOpens gives the spool a small disk and fills it.
func TestFullDiskClosesAndOpens(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	r := startRecording(t, l, p)
	r.allowed("at first")
	r.complete() // what is not shipped yet would be under the mount
	smallDisk(t, p, spoolOf(p), "2m", "edge")
	restart(t, p, "edge")
	r.allowed("on a small disk")

	ballast := filepath.Join(seen(t, p, spoolOf(p)), "ballast")
	fill := func() { fillUp(t, ballast) }
	r.refused("on a full disk", "record_failed", fill)

	// The org may choose otherwise; then what goes on unrecorded is counted.
	call(t, p, "PUT", "/settings/decisions?wait=applied", map[string]any{"mode": "best_effort", "paths": "full", "keep_days": 30}, 200, nil)
	before := r.health()
	var unrecorded []string // what is lost is told of a moment later
	if err := lab.Await(30*time.Second, "request that goes on unrecorded", func() bool {
		fill()
		path, said := r.ask()
		unrecorded = append(unrecorded, path)
		return strings.Contains(said, " 200 ") && r.health().Lost > before.Lost && r.recorded()[path] == 0
	}); err != nil {
		t.Errorf("%v: %+v", err, r.health())
	}
	if h := r.health(); h.Mode != "best_effort" {
		t.Errorf("%+v", h)
	}
	call(t, p, "PUT", "/settings/decisions?wait=applied", map[string]any{"mode": "strict", "paths": "full", "keep_days": 30}, 200, nil)
	r.refused("on a full disk, strict again", "record_failed", fill)

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	r.allowed("once there is room")
	r.complete(unrecorded...)
	if h := r.health(); h.Lost < 10 || h.Nodes[0].State != "ok" {
		t.Errorf("ten refusals could not be recorded, the health is %+v", h)
	}
	if said := p.CLI("decisions", "--limit", "1"); !strings.Contains(said.Stderr, "were lost") {
		t.Errorf("portreeve decisions says nothing of the losses: %+v", said)
	}
}

// fillUp writes to the file until its disk has no room left.
func fillUp(t *testing.T, ballast string) {
	t.Helper()
	f, err := os.OpenFile(ballast, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// TestUnwritableSpoolClosesAndOpens makes the spool's folder read-only under an edge that starts.
func TestUnwritableSpoolClosesAndOpens(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	r := startRecording(t, l, p)
	r.allowed("at first")
	inside(t, p, "mount", "--bind", spoolOf(p), spoolOf(p))
	inside(t, p, "mount", "-o", "remount,ro,bind", spoolOf(p))
	restart(t, p, "edge")
	r.refused("with a read-only spool", "record_failed", func() {})
	if h := r.health(); h.Nodes[0].State != "spool_unusable" {
		t.Errorf("the health is %+v", h)
	}
	inside(t, p, "umount", spoolOf(p))
	r.allowed("once it can be written")
	r.complete()
	if h := r.health(); h.Nodes[0].State != "ok" || h.Lost < 5 {
		t.Errorf("five refusals could not be recorded, the health is %+v", h)
	}
}

// TestKilledEdgeLosesNothing kills the edge under traffic, again and again.
func TestKilledEdgeLosesNothing(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	r := startRecording(t, l, p)
	r.allowed("at first")
	r.background("/workspace/hostile hold tcp.test:7")
	held := r.decided("allows the held connection", func(d decision) bool { return d.Layer == "connect" && d.Host == "tcp.test" })
	for range 4 {
		r.background(fmt.Sprintf("n=0; while [ -e /workspace/hostile ] && [ ! -e /tmp/enough ]; do n=$((n+1)); /workspace/hostile http %s:80 plain.test /k/$$/$n; done", r.addr))
	}
	for range 4 {
		some := len(r.arrived())
		if err := lab.Await(30*time.Second, "traffic", func() bool { return len(r.arrived()) > some+25 }); err != nil {
			t.Fatal(err)
		}
		restart(t, p, "edge")
	}
	r.exec("touch", "/tmp/enough")
	r.allowed("after it all")
	r.complete()
	var ended struct {
		Decision decision `json:"decision"`
	}
	if err := lab.Await(10*time.Second, "end of the held connection's record", func() bool {
		call(t, p, "GET", "/decisions/"+held.ID, nil, 200, &ended)
		return ended.Decision.Closed
	}); err != nil || ended.Decision.Error != "edge_died" {
		t.Errorf("the connection that was open when its edge died: %v, %+v", err, ended.Decision)
	}
	if h := r.health(); h.Lost != 0 || len(h.Nodes) != 1 || h.Nodes[0].Unsure != 0 {
		t.Errorf("nothing was refused, and the health is %+v", h)
	}
}

// TestFollowingGoesOnAcrossRestarts follows with the CLI while control and edge die under it.
func TestFollowingGoesOnAcrossRestarts(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	r := startRecording(t, l, p)
	out, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cmd := p.Command(ctx, "decisions", "-f", "--output", "json", "--sandbox", r.ID, "--verdict", "allow")
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); cmd.Wait() })
	// told counts the lines about each path, openings and ends apart.
	told := func() map[string]int {
		all := map[string]int{}
		data, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			var d decision
			if json.Unmarshal([]byte(line), &d) == nil && d.Layer == "http" {
				all[fmt.Sprint(d.Path, " ", d.Closed)]++
			}
		}
		return all
	}
	followed := func(when string) {
		t.Helper()
		if err := lab.Await(30*time.Second, "word of a request "+when, func() bool {
			path, said := r.ask()
			return strings.Contains(said, " 200 ") && lab.Await(5*time.Second, "it", func() bool { return told()[path+" true"] > 0 }) == nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	followed("at first")
	for _, role := range []string{"control", "edge", "control"} {
		restart(t, p, role)
		r.allowed("after the death of " + role)
		followed("after the death of " + role)
	}
	r.complete()
	all := told()
	first := false
	for n := 1; n <= r.n; n++ {
		path := "/n/" + strconv.Itoa(n)
		if all[path+" true"] == 1 {
			first = true
		}
		if first && r.recorded()[path] == 1 && all[path+" true"] != 1 || all[path+" false"] > 1 || all[path+" true"] > 1 {
			t.Errorf("of %s the beginning was told %d times, the end %d times", path, all[path+" false"], all[path+" true"])
		}
	}
}

// TestCountedDecisions: a rule that only counts leaves one row for many requests, but denials beside it have rows of their own.
func TestCountedDecisions(t *testing.T) {
	t.Parallel()
	l, p := own(t)
	ceiling(t, p, allow("counted", "plain.test", "ports", []int{80}, "protocols", []string{"http"}, "paths", []string{"/open/**"}, "log", "count"))
	r := &recording{box: armed(t, p), lab: l}
	for i := range 12 {
		if _, said := r.hostile("http", "plain.test:80", "plain.test", fmt.Sprint("/open/", i)); !strings.Contains(said, " 200 ") {
			t.Fatal(said)
		}
	}
	for i := range 3 {
		if _, said := r.hostile("http", "plain.test:80", "plain.test", fmt.Sprint("/shut/", i)); !strings.Contains(said, " 403 ") {
			t.Fatal(said)
		}
	}
	counted, denied := 0, 0
	if err := lab.Await(20*time.Second, "count of all requests", func() bool {
		var page struct {
			Decisions []struct {
				decision
				Count int `json:"count"`
			} `json:"decisions"`
		}
		call(t, p, "GET", "/decisions?limit=1000&sandbox_id="+r.ID, nil, 200, &page)
		counted, denied = 0, 0
		for _, d := range page.Decisions {
			switch {
			case d.Layer == "http" && d.Verdict == "allow":
				if counted += d.Count; d.Path != "" || !d.Closed {
					t.Errorf("a counting row: %+v", d)
				}
			case d.Layer == "http" && d.Verdict == "deny":
				denied++
			}
		}
		return counted >= 12 && denied >= 3
	}); err != nil || counted != 12 || denied != 3 {
		t.Errorf("12 requests were allowed and 3 denied, the record has %d and %d: %v", counted, denied, err)
	}
	if h := r.health(); h.Lost != 0 {
		t.Errorf("%+v", h)
	}
}
