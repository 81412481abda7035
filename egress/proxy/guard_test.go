package proxy

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Of the server's read deadline and that of a head, the earlier ends a read, whichever was set first. One that isn't set ends nothing.
func TestEarlierReadDeadlineCounts(t *testing.T) {
	const head, open = 10 * time.Second, time.Hour // the client leaves when open is over
	half, whole := []string{"GET"}, []string{"GET", " / HTTP/1.1\r\nHost: clear.test\r\n\r\n"}
	for name, c := range map[string]struct {
		sent       []string
		want, ends time.Duration // want is the server's; 0 is none
	}{
		"neither":                     {nil, 0, open},
		"the server's alone":          {nil, 5 * time.Second, 5 * time.Second},
		"the head's alone":            {half, 0, head},
		"the head's is earlier":       {half, 20 * time.Second, head},
		"the server's is earlier":     {half, 5 * time.Second, 5 * time.Second},
		"the head is whole":           {whole, 20 * time.Second, 20 * time.Second},
		"the head is whole, no other": {whole, 0, open},
	} {
		for _, first := range []bool{true, false} { // the server's is set before the head begins
			synctest.Test(t, func(t *testing.T) {
				client, nc := net.Pipe()
				defer nc.Close()
				defer client.Close()
				p := &Proxy{cfg: Config{Timeouts: Timeouts{Head: head}}}
				g := newGuard(nc, &connection{p: p, ctx: t.Context()})
				want, begun := time.Time{}, time.Now()
				if c.want > 0 {
					want = begun.Add(c.want)
				}
				set := func() {
					if err := g.SetReadDeadline(want); err != nil {
						t.Error(err)
					}
				}
				if first {
					set()
				}
				ended := make(chan error, 1)
				go func() { _, err := io.Copy(io.Discard, g); ended <- err }()
				for _, s := range c.sent {
					if _, err := io.WriteString(client, s); err != nil {
						t.Error(err)
					}
					synctest.Wait()
				}
				if !first {
					set()
				}
				leaves := time.AfterFunc(open, func() { client.Close() })
				defer leaves.Stop()
				err := <-ended
				if after := time.Since(begun); after != c.ends || isTimeout(err) != (c.ends < open) {
					t.Errorf("%s, the server's first %v: ended after %v, want %v: %v", name, first, after, c.ends, err)
				}
			})
		}
	}
}
