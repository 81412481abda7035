package main

import (
	"fmt"
	"net/url"
	"strings"
)

// doorPort is where the product's HTTP door listens, over TLS.
const doorPort = "8444"

// attach makes a sandbox of the first org that comes in by doors.
func (p *product) attach() (err error) {
	var made struct {
		ID string `json:"sandbox_id"`
	}
	err = p.call(p.info.APIKey, "POST", "/sandbox/create", map[string]any{"kind": "attached", "timeout_seconds": 3600}, &made)
	p.attached = made.ID
	return err
}

// door is a client of the attached sandbox: by its own socket, or over TLS with a password, which is good for a quarter of an hour.
func (p *product) door(kind, mode string, rate float64) (*stand, error) {
	var d struct {
		Username, Password, Socket string
	}
	if err := p.call(p.info.APIKey, "POST", "/sandbox/"+p.attached+"/door", map[string]any{"door": kind, "source": clientAddr}, &d); err != nil {
		return nil, err
	}
	to := &url.URL{Scheme: "https", User: url.UserPassword(d.Username, d.Password), Host: doorAddr + ":" + doorPort}
	if kind == "socket" {
		to = &url.URL{Scheme: "unix", Path: d.Socket}
	}
	return &stand{pids: p.pids, from: p.w.other, args: throughProxy(to.String(), mode, rate), close: func() {}}, nil
}

func oursBy(door, mode string, rate float64) contender {
	name := "portreeve"
	if door != "socket" {
		name += ", over TLS"
	}
	return contender{name, func(w *world) (*stand, error) { return w.product.door(door, mode, rate) }}
}

// throughProxy are the arguments for a client that asks a proxy for a tunnel.
func throughProxy(proxy, mode string, rate float64) []string {
	return append(loadArgs(mode, rate), "-proxy", proxy, "-addr", "pass.test:443", "-name", "pass.test")
}

func smokescreen(mode string, rate float64) contender {
	return contender{"smokescreen", func(w *world) (*stand, error) {
		return w.serve("smokescreen", "tcp", "4750", throughProxy("http://"+doorAddr+":4750", mode, rate), w.tool("smokescreen"),
			"--listen-ip", doorAddr, "--listen-port", "4750", "--allow-range", "203.0.113.0/24", "--resolver-address", targetAddr+":53")
	}}
}

func plainGoproxy(mode string, rate float64) contender {
	return contender{"goproxy", func(w *world) (*stand, error) {
		return w.serve("goproxy", "tcp", "3128", throughProxy("http://"+doorAddr+":3128", mode, rate), w.tool("goproxy"),
			"-listen", doorAddr+":3128", "-roots", w.path("ca.pem"), "-resolve", targetAddr+":443")
	}}
}

const squidConfig = `
http_port DOOR:3130
acl tunnel method CONNECT
acl named dstdomain pass.test
http_access allow tunnel named
http_access deny all
dns_nameservers TARGET
cache deny all
access_log stdio:DIR/squid-access.log
cache_log DIR/squid-cache.log
pid_filename none
coredump_dir DIR
shutdown_lifetime 1 seconds
`

func squid(mode string, rate float64) contender {
	return contender{"squid", func(w *world) (*stand, error) {
		text := strings.NewReplacer("DOOR", doorAddr, "TARGET", targetAddr, "DIR", w.path("squid")).Replace(squidConfig)
		if err := w.writeFor("proxy", "squid", text); err != nil {
			return nil, err
		}
		return w.serve("squid", "tcp", "3130", throughProxy("http://"+doorAddr+":3130", mode, rate), "squid", "-N", "-f", w.path("squid/conf"))
	}}
}

// tunnels are the contenders of a row about CONNECT.
func tunnels(mode string, rate float64) []contender {
	return []contender{oursBy("socket", mode, rate), smokescreen(mode, rate), oursBy("http", mode, rate), plainGoproxy(mode, rate), squid(mode, rate)}
}

// writeFor makes a folder that belongs to a user of the machine, with a file conf in it.
func (w *world) writeFor(user, folder, conf string) error {
	script := fmt.Sprintf("mkdir -p %[1]s && cat > %[1]s/conf && chown -R %[2]s %[1]s", w.path(folder), user)
	_, err := outputOf(conf, "sh", "-c", script)
	return err
}
