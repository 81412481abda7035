package dial

import (
	"net/netip"
	"time"

	"portreeve.dev/policies"
)

// JudgeForTest replaces the floor's word on addresses: no real floor lets a test connect to its own machine.
func (d *Dialer) JudgeForTest(judge func(org string, addr netip.Addr, port uint16) policies.Verdict) {
	d.judge = judge
	d.judgeAnswer = func(org string, addr netip.Addr) policies.Verdict { return judge(org, addr, 0) }
}

// KeptForTest is the connection that is kept to the first server over TLS.
func (d *Dialer) KeptForTest() *tlsConn { return d.client.tls[0].kept }

// ExpireForTest does what the end of its idle time does.
func (c *tlsConn) ExpireForTest() { c.expire() }

// NowForTest replaces the cache's clock.
func (d *Dialer) NowForTest(now func() time.Time) { d.client.now = now }

var (
	ConnectForTest = connect
	ReadForTest    = func(a answer) ([]string, []netip.Addr, Kind) { return a.aliases, a.addrs, a.kind }
	ParseForTest   = read

	ReadHeadForTest   = readHead
	ReadAnswerForTest = readAnswer

	SocksConnectForTest = socksConnect
)
