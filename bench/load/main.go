// Command load is the client of a measurement. It sends when sending is due, whether or not the last answer has come, and
// counts an answer's time from then (an open loop): a server that stalls is charged for everybody who had to wait.
//
// It prints one line of JSON: a Result.
package main

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"
)

// A Result is what a run came to. Times are in microseconds from when the request was due.
type Result struct {
	Done    int     `json:"done"`
	Failed  int     `json:"failed"`
	Error   string  `json:"error,omitempty"` // the first one
	Seconds float64 `json:"seconds"`
	P50     float64 `json:"p50"`
	P99     float64 `json:"p99"`
	Bytes   int64   `json:"bytes"`
}

type client struct {
	addr  string // what is dialled: host:port
	name  string // the server's name
	names int    // how many different ones are looked up
	proxy *url.URL
	body  int
}

func main() {
	mode := flag.String("mode", "request", "request, connect, dns, bytes or idle")
	rate := flag.Float64("rate", 1000, "a second")
	share := flag.Float64("share", 1, "of the rate that is sent")
	seconds := flag.Float64("seconds", 3, "")
	workers := flag.Int("workers", 32, "connections, or queries, at once")
	var c client
	flag.StringVar(&c.addr, "addr", "", "what is dialled")
	flag.StringVar(&c.name, "name", "", "server name, or name that is looked up")
	flag.IntVar(&c.names, "names", 0, "different names below -name that are looked up in turn, in four wildcards: n0.w0.NAME, n1.w1.NAME and so on")
	flag.IntVar(&c.body, "body", 1024, "bytes of an answer")
	proxy := flag.String("proxy", "", "http://user:password@host:port, https for TLS to the proxy, or unix:///path")
	resolver := flag.String("resolver", "", "asked once for the address of the host in -addr")
	flag.Parse()
	if *resolver != "" {
		if err := c.resolve(*resolver); err != nil {
			fail(err)
		}
	}
	if *proxy != "" {
		var err error
		if c.proxy, err = url.Parse(*proxy); err != nil {
			fail(err)
		}
	}
	*rate *= *share
	length := time.Duration(*seconds * float64(time.Second))
	switch *mode {
	case "request":
		report(open(*rate, length, *workers, c.keepAlive))
	case "connect":
		report(open(*rate, length, *workers, func() (func() (int64, error), error) { return c.once, nil }))
	case "dns":
		var turn atomic.Int64
		report(open(*rate, length, *workers, func() (func() (int64, error), error) { return c.queries(&turn) }))
	case "bytes":
		report(c.stream())
	case "idle":
		c.idle(*workers, length)
	default:
		fail(fmt.Errorf("unknown mode %q", *mode))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(1)
}

func report(r Result) {
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		fail(err)
	}
}

// giveUp is how long after it was due a request is not even sent any more.
const giveUp = 10 * time.Second

// open calls what each worker's start returns, at the rate. Dues that nobody took yet wait in a line.
func open(rate float64, length time.Duration, workers int, start func() (func() (int64, error), error)) Result {
	due := make(chan time.Time, int(rate*length.Seconds())+1)
	var (
		mu    sync.Mutex
		r     Result
		times []float64
		wg    sync.WaitGroup
	)
	ready := make(chan struct{}, workers)
	for range workers {
		wg.Go(func() {
			one, err := start()
			if err == nil {
				_, err = one() // warm: connections, caches
			}
			if err != nil {
				mu.Lock()
				r.Error = err.Error()
				r.Failed++
				mu.Unlock()
			}
			ready <- struct{}{}
			if one == nil {
				return
			}
			for at := range due {
				if time.Since(at) > giveUp {
					mu.Lock()
					r.Failed++
					mu.Unlock()
					continue // so late that nobody waits any more, and the run must end
				}
				n, err := one()
				took := time.Since(at)
				mu.Lock()
				if err != nil {
					r.Failed++
					if r.Error == "" {
						r.Error = err.Error()
					}
				} else {
					r.Done++
					r.Bytes += n
					times = append(times, float64(took.Nanoseconds())/1000)
				}
				mu.Unlock()
			}
		})
	}
	for range workers {
		<-ready
	}
	fmt.Fprintln(os.Stderr, "ready")
	begin, gap := time.Now(), time.Duration(float64(time.Second)/rate)
	for at := begin; at.Before(begin.Add(length)); at = at.Add(gap) {
		time.Sleep(time.Until(at))
		due <- at
	}
	close(due)
	wg.Wait()
	r.Seconds = time.Since(begin).Seconds()
	if len(times) > 0 {
		slices.Sort(times)
		r.P50, r.P99 = times[len(times)/2], times[len(times)*99/100]
	}
	return r
}

// resolve puts an address in the place of the host that is dialled.
func (c *client) resolve(resolver string) error {
	host, port, err := net.SplitHostPort(c.addr)
	if err != nil {
		return err
	}
	answer, err := dns.Exchange(new(dns.Msg).SetQuestion(dns.Fqdn(host), dns.TypeA), resolver)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", host, err)
	}
	for _, rr := range answer.Answer {
		if a, ok := rr.(*dns.A); ok {
			c.addr = net.JoinHostPort(a.A.String(), port)
			return nil
		}
	}
	return fmt.Errorf("asking for %s: %s", host, dns.RcodeToString[answer.Rcode])
}

func (c client) dial() (net.Conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	if c.proxy == nil {
		return d.Dial("tcp", c.addr)
	}
	network, addr := "tcp", c.proxy.Host
	if c.proxy.Scheme == "unix" {
		network, addr = "unix", c.proxy.Path
	}
	conn, err := d.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	if c.proxy.Scheme == "https" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	ask := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: c.addr}, Host: c.addr, Header: http.Header{}}
	if password, ok := c.proxy.User.Password(); ok {
		ask.SetBasicAuth(c.proxy.User.Username(), password)
		ask.Header["Proxy-Authorization"] = ask.Header["Authorization"]
		delete(ask.Header, "Authorization")
	}
	if err := ask.Write(conn); err != nil {
		conn.Close()
		return nil, err
	}
	answer, err := http.ReadResponse(bufio.NewReaderSize(conn, 1024), ask)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("the proxy answered %s", answer.Status)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// secure dials and does the handshake. Who the server is, is not what is measured.
func (c client) secure() (net.Conn, error) {
	raw, err := c.dial()
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, &tls.Config{ServerName: c.name, InsecureSkipVerify: true})
	if err := conn.Handshake(); err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

func (c client) head() string {
	return fmt.Sprintf("GET /?n=%d HTTP/1.1\r\nHost: %s\r\n\r\n", c.body, c.name)
}

// get asks once on a connection and reads all of the answer.
func (c client) get(conn net.Conn, r *bufio.Reader) (int64, error) {
	conn.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(conn, c.head()); err != nil {
		return 0, err
	}
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	n, err := io.Copy(io.Discard, answer.Body)
	if err == nil && (answer.StatusCode != 200 || n != int64(c.body)) {
		err = fmt.Errorf("status %d with %d bytes", answer.StatusCode, n)
	}
	return n, err
}

func (c client) keepAlive() (func() (int64, error), error) {
	conn, err := c.secure()
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(conn)
	return func() (int64, error) { return c.get(conn, r) }, nil
}

func (c client) once() (int64, error) {
	conn, err := c.secure()
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	return c.get(conn, bufio.NewReader(conn))
}

// stream reads one large body.
func (c client) stream() Result {
	var r Result
	conn, err := c.secure()
	if err == nil {
		fmt.Fprintln(os.Stderr, "ready")
		begin := time.Now()
		r.Bytes, err = c.get(conn, bufio.NewReaderSize(conn, 64<<10))
		r.Seconds, r.Done = time.Since(begin).Seconds(), 1
	}
	if err != nil {
		r.Error, r.Failed = err.Error(), 1
	}
	return r
}

// idle opens connections through which one request has gone, says ready, and holds them.
func (c client) idle(n int, hold time.Duration) {
	var held []net.Conn
	for range n {
		conn, err := c.secure()
		if err == nil {
			_, err = c.get(conn, bufio.NewReaderSize(conn, 4096))
		}
		if err != nil {
			fail(fmt.Errorf("after %d: %w", len(held), err))
		}
		held = append(held, conn)
	}
	fmt.Fprintln(os.Stderr, "ready")
	time.Sleep(hold)
	for _, conn := range held {
		conn.Close()
	}
	report(Result{Done: len(held)})
}

// queries asks for one name, or for the next of many; turn counts for all workers.
func (c client) queries(turn *atomic.Int64) (func() (int64, error), error) {
	conn, err := dns.Dial("udp", c.addr)
	if err != nil {
		return nil, err
	}
	q := new(dns.Msg).SetQuestion(dns.Fqdn(c.name), dns.TypeA)
	return func() (int64, error) {
		q.Id = dns.Id()
		if c.names > 0 {
			n := (turn.Add(1) - 1) % int64(c.names)
			q.Question[0].Name = fmt.Sprintf("n%d.w%d.%s", n, n%4, dns.Fqdn(c.name))
		}
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		if err := conn.WriteMsg(q); err != nil {
			return 0, err
		}
		answer, err := conn.ReadMsg()
		if err == nil && (answer.Id != q.Id || answer.Rcode != dns.RcodeSuccess || len(answer.Answer) == 0) {
			err = fmt.Errorf("answer %s with %d records", dns.RcodeToString[answer.Rcode], len(answer.Answer))
		}
		return 0, err
	}, nil
}
