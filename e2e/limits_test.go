package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// An orgUsage is what the API says of the month.
type orgUsage struct {
	Used  int64  `json:"used_bytes"`
	Left  *int64 `json:"left_bytes"`
	State string `json:"state"`
}

func used(t *testing.T, p *lab.Product) orgUsage {
	t.Helper()
	var u orgUsage
	call(t, p, "GET", "/usage/egress", nil, 200, &u)
	return u
}

// limit sets the org's own limits, pairs of field and number, and takes back all others.
func limit(t *testing.T, p *lab.Product, pairs ...any) {
	t.Helper()
	body := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		body[pairs[i].(string)] = pairs[i+1]
	}
	call(t, p, "PUT", "/settings/limits?wait=applied", body, 200, nil)
}

// TestLimitsOfAnOrg: connections to one destination, bandwidth, and the bytes of a month.
func TestLimitsOfAnOrg(t *testing.T) {
	_, p := own(t)
	ceiling(t, p, allow("good", "good.test"), allow("clear", "plain.test", "ports", []int{80}, "protocols", []string{"http"}),
		allow("echo", "tcp.test", "ports", []int{7, 22}, "protocols", []string{"tcp"}))
	b, other := armed(t, p), armed(t, p)

	t.Run("connections to one destination", func(t *testing.T) {
		b.t, other.t = t, t
		limit(t, p, "connections_per_destination", 2)
		b.background("/workspace/hostile hold tcp.test:7")
		other.background("/workspace/hostile hold tcp.test:7")
		if err := lab.Await(10*time.Second, "two that hold", func() bool { return len(b.flows()) == 1 && len(other.flows()) == 1 }); err != nil {
			t.Fatal(err)
		}
		if open, said := b.hostile("tcp", "tcp.test:7"); open {
			t.Errorf("a third: %s", said)
		}
		d := b.decided("refuses the third", func(d decision) bool { return d.Host == "tcp.test" && d.Verdict == "deny" })
		if d.Reason != "budget" || !strings.Contains(d.Guidance, "2 connections to this destination") {
			t.Errorf("recorded as %+v", d)
		}
		if open, said := b.hostile("tcp", "tcp.test:22"); !open {
			t.Errorf("another port is another destination: %s", said)
		}
		if open, said := b.hostile("tls", "good.test:443", "good.test", "good.test", "/"); !open {
			t.Errorf("another host is another destination: %s", said)
		}
		call(t, p, "DELETE", "/sandbox/"+other.ID+"/flows/"+other.flows()[0].ID, nil, 200, nil)
		b.works("with room again", "/workspace/hostile", "tcp", "tcp.test:7")
		call(t, p, "DELETE", "/sandbox/"+b.ID+"/flows/"+b.flows()[0].ID, nil, 200, nil)
	})

	t.Run("bandwidth", func(t *testing.T) {
		b.t, other.t = t, t
		const rate = 256 << 10
		limit(t, p, "sandbox_bytes_in_per_second", rate)
		b.download("good.test", "slow")
		from, begun := b.goesOn("slow download that begins", "slow", 128<<10), time.Now()
		to := b.goesOn("slow download that goes on", "slow", from+(1<<20))
		// What the sandbox has is at most what the rate lets through, what may come at once, and what was on its way before.
		if most := int64(time.Since(begun).Seconds()*rate) + rate/4 + 256<<10; to-from > most {
			t.Errorf("%d bytes in %v, at most %d by %d a second", to-from, time.Since(begun), most, rate)
		}
		n, _ := b.drained("slow")
		limit(t, p)
		b.goesOn("download without the limit", "slow", n+(2<<20))
		call(t, p, "DELETE", "/sandbox/"+b.ID+"/flows/"+b.flows()[0].ID, nil, 200, nil)
	})

	t.Run("quota", func(t *testing.T) {
		b.t, other.t = t, t
		const more = 12 << 20
		before := used(t, p)
		if before.State != "ok" || before.Left != nil || before.Used < 3<<20 {
			t.Errorf("before: %+v", before)
		}
		quota := before.Used + more
		limit(t, p, "monthly_quota_bytes", quota)
		b.download("good.test", "quota")
		if err := lab.Await(30*time.Second, "warning", func() bool { return used(t, p).State == "warning" }); err != nil {
			t.Fatalf("%v: %+v of %d", err, used(t, p), quota)
		}
		if _, ended := b.drained("quota"); ended != "" {
			t.Errorf("with a warning the download has ended: %s", ended)
		}
		b.ends("download that uses the quota up", "quota")
		d := b.decided("closes it", func(d decision) bool { return d.Host == "good.test" && d.Closed && d.Error == "quota" })
		if d.In < more/2 || d.In > more+(2<<20) {
			t.Errorf("%d bytes came of a quota with %d left", d.In, more)
		}
		if err := lab.Await(10*time.Second, "end of the quota", func() bool { return used(t, p).State == "exhausted" }); err != nil {
			t.Fatal(err)
		}
		if open, said := other.hostile("tls", "good.test:443", "good.test", "good.test", "/"); open {
			t.Errorf("another sandbox of the org goes on: %s", said)
		}
		if _, said := other.hostile("http", "plain.test:80", "plain.test", "/"); !strings.Contains(said, " 403 ") || !strings.Contains(said, "quota") || !strings.Contains(said, fmt.Sprint(quota)) {
			t.Errorf("over HTTP it is told %s", said)
		}
		other.decided("refuses it for the quota", func(d decision) bool { return d.Host == "good.test" && d.Verdict == "deny" && d.Reason == "quota" })
		for _, action := range []string{"quota.warning", "quota.exhausted"} {
			if r := p.CLI("audit", "--action", action); r.Code != 0 || strings.Count(r.Stdout, action) != 1 {
				t.Errorf("the audit log: %v", r)
			}
		}
		// The count outlives the edge, and counts nothing twice.
		count := used(t, p).Used
		old, err := p.Kill("edge", syscall.SIGKILL)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.AwaitRestart("edge", old, 15*time.Second); err != nil {
			t.Fatal(err)
		}
		limit(t, p)
		other.works("with a new edge and no quota", "/workspace/hostile", "tls", "good.test:443", "good.test", "good.test", "/")
		if err := lab.Await(10*time.Second, "count of the new edge", func() bool { return used(t, p).Used > count }); err != nil {
			t.Fatal(err)
		}
		if after := used(t, p).Used; after > count+(1<<20) {
			t.Errorf("%d bytes before the edge was killed, %d after", count, after)
		}
	})
}
