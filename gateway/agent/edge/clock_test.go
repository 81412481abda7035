package edge

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"portreeve.dev/egress/credentials"
	"portreeve.dev/gateway/feed"
	"portreeve.dev/gateway/internal/clock"
	"portreeve.dev/gateway/role"
	"portreeve.dev/policies"
)

// setBack starts the edge as under a machine's clock that was set back by so much since the run began: its line is ahead by that.
func setBack(by time.Duration) func(*role.EdgeStart) {
	return func(start *role.EdgeStart) { start.Clock = clock.New(time.Now().Add(by)) }
}

// ending is a state in which everything ends at one time: a sandbox's attachment, what it may reach, what is open of the floor.
func ending(t *testing.T, at time.Time, signs feed.DoorKey) feed.State {
	t.Helper()
	s := withGuest(1, signs)
	s.Sandboxes[len(s.Sandboxes)-1].Attached.Ends = at
	s.Sandboxes = append(s.Sandboxes, feed.Sandbox{ID: "sbx_other", Org: org, Attached: &feed.Attached{Incarnation: 1, Ends: at.AddDate(1, 0, 0)}})
	s.Exempt = []feed.Exemption{{CIDR: "10.1.0.0/16", Orgs: []string{"*"}, ExpiresAt: at}}
	s.Orgs[0].Ceiling.Document = json.RawMessage(fmt.Sprintf(`{"rules":[{"id":"good","action":"allow","hosts":["good.test"],"ports":[443],"protocols":["https","tcp"],"expires_at":%q}]}`,
		at.UTC().Format(time.RFC3339)))
	return s
}

func TestWhatEndedStaysEnded(t *testing.T) {
	const day = 24 * time.Hour
	for name, tt := range map[string]struct {
		back, ends time.Duration // by how much the clock was set back; the end, by the machine's clock
		lives      bool
	}{
		"by a clock that is right":          {0, 10 * time.Minute, true},
		"set back to before the end":        {day, 10 * time.Minute, false},
		"set back, and the end still ahead": {day, day + 10*time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, setBack(tt.back))
			w.caged.Store(true)
			w.doors.serve()
			end := time.Now().Add(tt.ends)
			signs := feed.DoorKey{Version: 1, Key: []byte(strings.Repeat("k", 32))}
			if err := talk(t, w.supervisor, "control", nil).Call(t.Context(), feed.Policies, ending(t, end, signs), nil); err != nil {
				t.Fatal(err)
			}
			if _, ok := w.bindings.Attached(guest); ok != tt.lives {
				t.Errorf("the attached sandbox is there: %v", ok)
			}
			if v := w.holder.Floor().Judge(org, netip.MustParseAddr("10.1.0.1"), 443); v.Allowed() != tt.lives {
				t.Errorf("the exemption of the floor is open: %v", v.Allowed())
			}
			here := netip.MustParseAddr("127.0.0.1")
			password, err := credentials.Mint(credentials.Key{Version: 1, Secret: signs.Key}, credentials.Claims{Sandbox: "sbx_other", Incarnation: 1, Door: credentials.HTTP, Source: here, Expires: end})
			if err != nil {
				t.Fatal(err)
			}
			if a := w.doors.gate.Admit(t.Context(), credentials.HTTP, here, "sbx_other", password); (a.Reason == "") != tt.lives || !tt.lives && a.Reason != policies.ReasonCredentialExpired {
				t.Errorf("the door says %q of the password", a.Reason)
			}
			path, err := w.socket(t, "sbx_other")
			if err != nil {
				t.Fatal(err)
			}
			nc, err := net.Dial("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			want := http.StatusOK
			if !tt.lives {
				want = http.StatusForbidden
			}
			if got := tunnel(t, nc, "good.test:443", ""); got != want {
				t.Errorf("what the rule allows: %d, want %d", got, want)
			}
		})
	}
}
