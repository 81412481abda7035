package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// TB is what the lab needs of a *testing.T.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
	Cleanup(func())
}

// Options choose what a lab is like; the zero value is what most tests want.
type Options struct {
	Dir string // for the CA file and the product's state; default: a new folder under /var/tmp, removed by Close
}

// A Lab is a running small internet.
type Lab struct {
	Dir     string
	Gateway *Namespace // where the product runs
	Net     *Namespace // where everything else is
	Capture *Capture
	CA      *CA
	DNS     *DNS
	Web     *Web  // good.test, api.test, *.wild.test, plain.test, public.test, private.test, the badly certified ones
	TCP     *TCP  // tcp.test: echo on 7, a server that speaks first on 22
	Evil    *Evil // evil.test

	keepDir bool
	closers []func() error // in the order of their making

	mu     sync.Mutex
	states []string // folders of the products that were started
}

// Start makes a lab that ends with the test.
func Start(t TB, o Options) *Lab {
	t.Helper()
	l, err := New(o)
	if err != nil {
		t.Fatalf("starting the lab: %v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("closing the lab: %v", err)
		}
	})
	return l
}

// New makes a lab; the caller closes it.
func New(o Options) (l *Lab, err error) {
	l = &Lab{Dir: o.Dir, keepDir: o.Dir != ""}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if l.Dir == "" {
		// Short, as unix socket names below it must fit 107 bytes, and on a disk that programs may be run from.
		if l.Dir, err = os.MkdirTemp("/var/tmp", "lab"); err != nil {
			return l, err
		}
	}
	if err := os.Chmod(l.Dir, 0o755); err != nil { // the product's other uids pass through
		return l, err
	}
	var id [3]byte
	rand.Read(id[:])
	prefix := "lab" + hex.EncodeToString(id[:])
	if l.Gateway, err = newNamespace(prefix + "-gw"); err != nil {
		return l, err
	}
	l.closers = append(l.closers, l.Gateway.remove)
	if l.Net, err = newNamespace(prefix + "-net"); err != nil {
		return l, err
	}
	l.closers = append(l.closers, l.Net.remove)
	if err := wire(l.Gateway, l.Net); err != nil {
		return l, fmt.Errorf("wiring the lab: %w", err)
	}
	if l.Capture, err = startCapture(l.Net, netLink, l.marker); err != nil {
		return l, fmt.Errorf("starting the capture: %w", err)
	}
	l.closers = append(l.closers, l.Capture.close)
	return l, l.startServices()
}

func (l *Lab) startServices() (err error) {
	if l.CA, err = newCA(filepath.Join(l.Dir, "lab-ca.pem")); err != nil {
		return fmt.Errorf("making the lab CA: %w", err)
	}
	if l.DNS, err = startDNS(l.Net); err != nil {
		return fmt.Errorf("starting the name server: %w", err)
	}
	l.closers = append(l.closers, l.DNS.close)
	if l.Web, err = startWeb(l.Net, l.CA); err != nil {
		return fmt.Errorf("starting the web servers: %w", err)
	}
	l.closers = append(l.closers, l.Web.close)
	if l.TCP, err = startTCP(l.Net); err != nil {
		return fmt.Errorf("starting the tcp services: %w", err)
	}
	l.closers = append(l.closers, l.TCP.close)
	if l.Evil, err = startEvil(l.Net, l.CA); err != nil {
		return fmt.Errorf("starting evil.test: %w", err)
	}
	l.closers = append(l.closers, l.Evil.close)
	return nil
}

// Close ends everything that New made, the last first.
func (l *Lab) Close() error {
	var errs []error
	for i := len(l.closers) - 1; i >= 0; i-- {
		errs = append(errs, l.closers[i]())
	}
	l.closers = nil
	if !l.keepDir && l.Dir != "" {
		errs = append(errs, os.RemoveAll(l.Dir))
	}
	return errors.Join(errs...)
}

// marker sends text to the router, past all rules that concern the product's own uids.
func (l *Lab) marker(text string) error {
	return l.Gateway.Do(func() error {
		c, err := net.Dial("udp", netip.AddrPortFrom(routerAddr, markerPort).String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte(text))
		return err
	})
}

// DialGateway dials an address literal from the gateway namespace, where the product listens.
func (l *Lab) DialGateway(ctx context.Context, network, address string) (c net.Conn, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dialling %q in the gateway namespace: want an address literal: %w", address, err)
	}
	err = l.Gateway.Do(func() error {
		d := net.Dialer{Timeout: 10 * time.Second}
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Client returns an HTTP client in the gateway namespace. All hosts named localhost, and those under it, are at
// loopback; other names are not resolved.
func (l *Lab) Client() *http.Client {
	return &http.Client{
		Timeout: 60 * time.Second,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return l.DialGateway(ctx, network, loopback(address))
			},
			DisableKeepAlives: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func loopback(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	const suffix = "localhost"
	if host == suffix || len(host) > len(suffix) && host[len(host)-len(suffix)-1:] == "."+suffix {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// Addr returns the address of one of the lab's hosts.
func (l *Lab) Addr(host string) netip.Addr {
	r := l.DNS.Record(host)
	if r.Answers == nil {
		_, parent, _ := strings.Cut(host, ".")
		r = l.DNS.Record("*." + parent)
	}
	if len(r.Answers) == 0 {
		return netip.Addr{}
	}
	return r.Answers[0][0]
}
