package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// A liveFlow is what the API says of an open connection.
type liveFlow struct {
	ID       string `json:"id"`
	Sandbox  string `json:"sandbox_id"`
	Decision string `json:"decision_id"`
	Host     string `json:"host"`
	Address  string `json:"address"`
	Port     int    `json:"port"`
	Level    string `json:"level"`
	Rule     string `json:"rule"`
	In       int64  `json:"bytes_in"`
	Out      int64  `json:"bytes_out"`
	Opaque   bool   `json:"opaque"`
}

// flows lists what the sandbox has open.
func (b *box) flows() []liveFlow {
	b.t.Helper()
	var page struct {
		Flows []liveFlow `json:"flows"`
	}
	call(b.t, b.p, "GET", "/sandbox/"+b.ID+"/flows", nil, 200, &page)
	return page.Flows
}

// download starts one without end in the background; what it wrote so far is read with drained.
func (b *box) download(host, file string) {
	b.t.Helper()
	b.background(fmt.Sprintf("/workspace/hostile drain %s:443 %s %s /bytes/1073741824 /workspace/%s", host, host, host, file))
}

// drained is how many bytes a download has, and why it ended, if it did.
func (b *box) drained(file string) (n int64, ended string) {
	b.t.Helper()
	said := strings.TrimSpace(b.exec("cat", "/workspace/"+file).Stdout)
	number, why, _ := strings.Cut(said, " ended: ")
	n, _ = strconv.ParseInt(number, 10, 64)
	return n, why
}

// goesOn waits until a download has more than a number of bytes.
func (b *box) goesOn(what, file string, beyond int64) int64 {
	b.t.Helper()
	var n int64
	if err := lab.Await(30*time.Second, what, func() bool {
		var ended string
		n, ended = b.drained(file)
		if ended != "" {
			b.t.Fatalf("%s: it ended: %s", what, ended)
		}
		return n > beyond
	}); err != nil {
		b.t.Fatalf("%v: %d bytes", err, n)
	}
	return n
}

// ends waits until a download has ended.
func (b *box) ends(what, file string) {
	b.t.Helper()
	if err := lab.Await(30*time.Second, what, func() bool { _, ended := b.drained(file); return ended != "" }); err != nil {
		b.t.Fatal(err)
	}
}

// TestKilledFlowEndsAndItsNeighbourGoesOn: two downloads of one sandbox and one of another; one is ended by its id.
func TestKilledFlowEndsAndItsNeighbourGoesOn(t *testing.T) {
	l, p := own(t)
	ceiling(t, p, allow("good", "good.test"), allow("api", "api.test", "tls", "inspect"))
	b, other := armed(t, p), armed(t, p)
	b.download("good.test", "passed")
	b.download("api.test", "opened")
	other.download("good.test", "theirs")
	for _, d := range []struct {
		b    *box
		file string
	}{{b, "passed"}, {b, "opened"}, {other, "theirs"}} {
		d.b.goesOn("download that begins", d.file, 256<<10)
	}
	byHost := map[string]liveFlow{}
	for _, f := range b.flows() {
		byHost[f.Host] = f
	}
	passed, opened := byHost["good.test"], byHost["api.test"]
	if passed.Sandbox != b.ID || passed.Rule != "good" || passed.Level != "sni" || !passed.Opaque || passed.Address != l.Addr("good.test").String() || passed.Port != 443 || passed.In < 256<<10 || passed.Out == 0 {
		t.Errorf("the passed download is listed as %+v", passed)
	}
	if opened.Rule != "api" || opened.Level != "http" || opened.Opaque || opened.Address != l.Addr("api.test").String() || opened.In < 256<<10 {
		t.Errorf("the opened download is listed as %+v", opened)
	}
	if answer, err := p.API("DELETE", "/sandbox/"+other.ID+"/flows/"+passed.ID, nil); err != nil || answer.Status != 404 {
		t.Errorf("as a flow of another sandbox: %v %v", answer, err)
	}
	call(t, p, "DELETE", "/sandbox/"+b.ID+"/flows/"+passed.ID, nil, 200, nil)
	b.ends("the killed download to end", "passed")
	d := b.decided("closes the killed download", func(d decision) bool { return d.ID == passed.Decision && d.Closed })
	if d.Error != "killed" || d.In == 0 {
		t.Errorf("the killed download is closed as %+v", d)
	}
	for _, d := range []struct {
		b    *box
		file string
	}{{b, "opened"}, {other, "theirs"}} {
		n, _ := d.b.drained(d.file)
		d.b.goesOn("neighbour that goes on", d.file, n)
	}
	if r := p.CLI("flows", "kill", opened.ID); r.Code != 0 {
		t.Errorf("by the command line: %v", r)
	}
	b.ends("the second killed download to end", "opened")
	if d = b.decided("closes the opened one", func(d decision) bool { return d.ID == opened.Decision && d.Closed }); d.Error != "killed" {
		t.Errorf("the opened one is closed as %+v", d)
	}
	n, _ := other.drained("theirs")
	other.goesOn("the other sandbox's download", "theirs", n)
	if r := p.CLI("audit", "--action", "flow.kill"); r.Code != 0 || strings.Count(r.Stdout, "flow.kill") != 2 || !strings.Contains(r.Stdout, passed.ID) {
		t.Errorf("the audit log: %v", r)
	}
	// A policy that changes, and a rule that ends by itself, end what lived by them and nothing else.
	ends := time.Now().Add(5 * time.Second).UTC().Format(time.RFC3339Nano)
	ceiling(t, p, allow("good", "good.test", "expires_at", ends), allow("wild", "*.wild.test"))
	other.download("one.wild.test", "lasting")
	other.goesOn("download under another rule", "lasting", 0)
	other.ends("download whose rule ends", "theirs")
	n, _ = other.drained("lasting")
	other.goesOn("its neighbour", "lasting", n)
	other.decided("closes what lived by the rule that ended", func(d decision) bool { return d.Host == "good.test" && d.Closed && d.Error == "revoked" })
}
