package main

import "fmt"

// A row is one thing that is measured for several contenders. The first is ours, the second the reference.
type row struct {
	name, what string
	measure    measure
	contenders []contender
}

// A contender is what a row is measured on: args are for the load generator.
type contender struct {
	name  string
	ready func(*world) (*stand, error) // starts it, once in a row
}

// A stand is a contender that is ready.
type stand struct {
	pids  func() []int
	from  *space
	args  []string
	close func()
	each  func() error // before each round; nil: nothing
}

type measure int

const (
	rated     measure = iota // at a rate: processor time per operation, latency
	stream                   // one large body: MB/s, processor time per GiB
	idle                     // memory of a connection that does nothing
	recorded                 // like rated, until what was decided is stored: what a line of the record costs
	changed                  // time from a change of the policy until every edge has it in force
	fair                     // latency of a second org, alone and beside a flood of the first
	fairApart                // the same, beside a flood that costs nobody but whoever it goes through
)

var rows = []row{
	{"open/request", "a request on an opened connection, with a secret put in, 1,000 a second", rated,
		[]contender{ours("open.test", "request", 1000), goproxy(true, "request", 1000), mitmproxy("request", 200), direct("open.test", "request", 1000)}},
	{"open/connect", "a new connection that is opened, with one request, 60 a second", rated,
		[]contender{ours("open.test", "connect", 60), goproxy(true, "connect", 60), mitmproxy("connect", 20), direct("open.test", "connect", 60)}},
	{"pass/request", "a request inside a connection that is passed through, 1,500 a second", rated,
		[]contender{ours("pass.test", "request", 1500), haproxy("request", 1500), direct("pass.test", "request", 1500)}},
	{"pass/connect", "a new connection passed through by its name, with one request, 150 a second", rated,
		[]contender{ours("pass.test", "connect", 150), haproxy("connect", 150), direct("pass.test", "connect", 150)}},
	{"dns", "a query for one allowed name, 3,000 a second, repetitions counted in one line of the record", rated,
		[]contender{oursDNS("pass.test", 3000), coredns(3000), unbound(3000), directDNS(3000)}},
	{"record/request", "the record of a request on an opened connection, 1,000 a second", recorded,
		[]contender{ours("kept.test", "request", 1000).as(written), ours("counted.test", "request", 1000).as(counted)}},
	{"record/connect", "the record of a connection that is passed through, 150 a second", recorded,
		[]contender{ours("pass.test", "connect", 150).as(written), ours("tally.test", "connect", 150).as(counted)}},
	{"record/dns", "the record of a query, 1,000 a second", recorded,
		[]contender{oursManyNames(1000).as(written), oursDNS("n0.w0.each.test", 1000).as(counted)}},
	{"pass/stream", "256 MiB through a connection that is passed through", stream,
		[]contender{ours("pass.test", "bytes", 0), haproxy("bytes", 0), direct("pass.test", "bytes", 0)}},
	{"open/stream", "256 MiB through an opened connection", stream,
		[]contender{ours("open.test", "bytes", 0), goproxy(true, "bytes", 0), direct("open.test", "bytes", 0)}},
	{"pass/idle", "1,000 idle connections that are passed through", idle,
		[]contender{ours("pass.test", "idle", 0), haproxy("idle", 0)}},
	{"open/idle", "1,000 idle connections that are opened", idle,
		[]contender{ours("open.test", "idle", 0), goproxy(true, "idle", 0)}},
	{"connect/request", "a request inside a tunnel by CONNECT, through a door, 1,500 a second", rated,
		append(tunnels("request", 1500), direct("pass.test", "request", 1500))},
	{"connect/connect", "a new tunnel by CONNECT, through a door, with one request, 150 a second", rated,
		append(tunnels("connect", 150), direct("pass.test", "connect", 150))},
	{"connect/idle", "1,000 idle tunnels by CONNECT, through a door", idle, tunnels("idle", 0)},
	{"fairness/crowded", "requests of a second org while the first passes connections through and looks up names as fast as it can, its clients and the target on the same processors", fair, nil},
	{"fairness/apart", "requests of a second org while the first has connections opened and looks up names as fast as it can, to a server of its own that like its clients takes the processor from nobody", fairApart, nil},
	{"change", "a change of the policy, from when it is due until every edge has it in force, 50 one after the other", changed, nil},
}

const large = 256 << 20

// loadArgs are what the load generator is told for a mode.
func loadArgs(mode string, rate float64) []string {
	args := []string{"-mode", mode}
	switch mode {
	case "bytes":
		args = append(args, "-body", fmt.Sprint(large))
	case "idle":
		args = append(args, "-workers", "1000", "-seconds", "3")
	case "connect":
		args = append(args, "-rate", fmt.Sprint(rate), "-workers", "16")
	default:
		args = append(args, "-rate", fmt.Sprint(rate), "-workers", "32")
	}
	return args
}

func ours(host, mode string, rate float64) contender {
	return contender{"portreeve", func(w *world) (*stand, error) { return w.product.stand(0, host, loadArgs(mode, rate)), nil }}
}

// stand is a client in the sandbox of an org.
func (p *product) stand(org int, host string, args []string) *stand {
	b := p.boxes[org]
	return &stand{pids: p.pids, from: &b.space, args: append(args, "-addr", host+":443", "-name", host, "-resolver", b.gateway+":53"), close: func() {}}
}

func (p *product) pids() []int { return family(p.proc.cmd.Process.Pid) }

func oursDNS(name string, rate float64) contender {
	return contender{"portreeve", func(w *world) (*stand, error) { return w.product.asking(name, rate), nil }}
}

// asking is a client of the first org's resolver.
func (p *product) asking(name string, rate float64) *stand {
	b := p.boxes[0]
	return &stand{pids: p.pids, from: &b.space, args: append(loadArgs("dns", rate), "-addr", b.gateway+":53", "-name", name), close: func() {}}
}

// nothing is the name of a contender with nothing between.
const nothing = "direct"

// direct is the target itself, with only a router between: what everything else adds to.
func direct(host, mode string, rate float64) contender {
	return contender{nothing, func(w *world) (*stand, error) {
		return w.aside(append(loadArgs(mode, rate), "-addr", targetAddr+":443", "-name", host)), nil
	}}
}

// directDNS is the name server itself.
func directDNS(rate float64) contender {
	return contender{nothing, func(w *world) (*stand, error) {
		return w.aside(append(loadArgs("dns", rate), "-addr", targetAddr+":53", "-name", "pass.test")), nil
	}}
}

// aside is a client that goes through nobody.
func (w *world) aside(args []string) *stand {
	return &stand{pids: func() []int { return nil }, from: w.other, args: args, close: func() {}}
}
