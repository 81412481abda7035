package main

import (
	"fmt"
	"os"
)

// serve starts a reference in the product's namespace and returns a stand on it.
func (w *world) serve(name, network, port string, load []string, args ...string) (*stand, error) {
	p, err := w.start(name, w.gate, args...)
	if err != nil {
		return nil, err
	}
	if err := w.gate.awaitPort(network, doorAddr+":"+port, p); err != nil {
		p.stop()
		return nil, err
	}
	return &stand{pids: func() []int { return family(p.cmd.Process.Pid) }, from: w.other, args: load, close: p.stop}, nil
}

func goproxy(open bool, mode string, rate float64) contender {
	return contender{"goproxy", func(w *world) (*stand, error) {
		load := append(loadArgs(mode, rate), "-proxy", "http://"+doorAddr+":3128", "-addr", "open.test:443", "-name", "open.test")
		return w.serve("goproxy", "tcp", "3128", load, w.tool("goproxy"), "-listen", doorAddr+":3128", fmt.Sprintf("-open=%v", open),
			"-cert", w.path("ca.pem"), "-key", w.path("ca.key"), "-roots", w.path("ca.pem"), "-resolve", targetAddr+":443", "-flood", floodAddr+":443")
	}}
}

func mitmproxy(mode string, rate float64) contender {
	return contender{"mitmproxy", func(w *world) (*stand, error) {
		load := append(loadArgs(mode, rate), "-proxy", "http://"+doorAddr+":3129", "-addr", "open.test:443", "-name", "open.test")
		return w.serve("mitmproxy", "tcp", "3129", load, "mitmdump", "-q", "--listen-host", doorAddr, "--listen-port", "3129",
			"--set", "confdir="+w.path("mitm"), "--set", "ssl_verify_upstream_trusted_ca="+w.path("ca.pem"),
			"--modify-headers", "/~q/X-Api-Key/0123456789abcdef")
	}}
}

const haproxyConfig = `
global
    maxconn 4000
    nbthread 2
defaults
    mode tcp
    timeout connect 5s
    timeout client 5m
    timeout server 5m
frontend in
    bind %s:8443
    tcp-request inspect-delay 5s
    tcp-request content accept if { req_ssl_hello_type 1 }
    use_backend target if { req.ssl_sni -i pass.test }
backend target
    server one %s:443
`

func haproxy(mode string, rate float64) contender {
	return contender{"haproxy", func(w *world) (*stand, error) {
		if err := os.WriteFile(w.path("haproxy.cfg"), fmt.Appendf(nil, haproxyConfig, doorAddr, targetAddr), 0o644); err != nil {
			return nil, err
		}
		load := append(loadArgs(mode, rate), "-addr", doorAddr+":8443", "-name", "pass.test")
		return w.serve("haproxy", "tcp", "8443", load, "haproxy", "-db", "-f", w.path("haproxy.cfg"))
	}}
}

func coredns(rate float64) contender {
	return contender{"coredns", func(w *world) (*stand, error) {
		conf := fmt.Sprintf(".:5301 {\n bind %s\n log\n errors\n hosts {\n  %s pass.test\n }\n}\n", doorAddr, targetAddr)
		if err := os.WriteFile(w.path("Corefile"), []byte(conf), 0o644); err != nil {
			return nil, err
		}
		return w.serve("coredns", "udp", "5301", append(loadArgs("dns", rate), "-addr", doorAddr+":5301", "-name", "pass.test"),
			w.tool("coredns"), "-conf", w.path("Corefile"))
	}}
}

const unboundConfig = `
server:
    interface: %s@5302
    access-control: 0.0.0.0/0 allow
    do-daemonize: no
    username: ""
    chroot: ""
    pidfile: ""
    use-syslog: no
    logfile: ""
    log-queries: yes
    num-threads: 2
    local-data: "pass.test. A %s"
`

func unbound(rate float64) contender {
	return contender{"unbound", func(w *world) (*stand, error) {
		if err := os.WriteFile(w.path("unbound.conf"), fmt.Appendf(nil, unboundConfig, doorAddr, targetAddr), 0o644); err != nil {
			return nil, err
		}
		return w.serve("unbound", "udp", "5302", append(loadArgs("dns", rate), "-addr", doorAddr+":5302", "-name", "pass.test"),
			"unbound", "-d", "-c", w.path("unbound.conf"))
	}}
}
