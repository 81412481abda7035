package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

// Addresses of the bench. Documentation addresses: the product has to be told that they are not forbidden.
const (
	gatewayAddr = "203.0.113.1"
	targetAddr  = "203.0.113.2"
	floodAddr   = "203.0.113.3" // the target of a flood: a server of its own
	doorAddr    = "10.99.0.0"   // where the references listen for their client
	clientAddr  = "10.99.0.1"
)

// A space is a network namespace; of the product's own only a process inside its mount namespace can say the name.
type space struct {
	name  string
	mount int // pid whose mount namespace knows the name; 0: ours
}

func (s *space) command(args ...string) []string {
	full := append([]string{"ip", "netns", "exec", s.name}, args...)
	if s.mount > 0 {
		full = append([]string{"nsenter", "-t", fmt.Sprint(s.mount), "-m"}, full...)
	}
	return full
}

func (s *space) run(args ...string) (string, error) { return output(s.command(args...)...) }

// A world is everything that one run needs.
type world struct {
	dir, tools, bin  string
	gate, net, other *space // the product and the references; the target; the references' client
	product          *product
	share            float64 // of a row's rate that is sent
	connections      int     // that one org can have
	undo             []func()
}

func newWorld(ctx context.Context, tools, bin string) (*world, error) {
	w := &world{tools: tools, bin: bin}
	var err error
	if w.dir, err = os.MkdirTemp("/var/tmp", "bench-"); err != nil {
		return nil, err
	}
	w.undo = append(w.undo, func() { os.RemoveAll(w.dir) })
	os.Chmod(w.dir, 0o755) // some references drop their rights
	tag := fmt.Sprintf("bench%d", os.Getpid())
	w.gate, w.net, w.other = &space{name: tag + "g"}, &space{name: tag + "n"}, &space{name: tag + "c"}
	if err := w.link(); err != nil {
		return w, err
	}
	if err := w.certificates(); err != nil {
		return w, err
	}
	target, err := w.start("target", w.net, w.tool("target"), "-https", targetAddr+":443", "-dns", targetAddr+":53", "-answer", targetAddr, "-flood", floodAddr,
		"-cert", w.path("target.pem"), "-key", w.path("target.key"))
	if err != nil {
		return w, err
	}
	if err := w.net.awaitPort("tcp", targetAddr+":443", target); err != nil {
		return w, err
	}
	if err := w.startFlooded(); err != nil {
		return w, err
	}
	w.product, err = w.startProduct(ctx)
	return w, err
}

// startFlooded starts the server that a flood goes to.
func (w *world) startFlooded() error {
	if _, err := output("ip", "-n", w.net.name, "addr", "add", floodAddr+"/24", "dev", "down0"); err != nil {
		return err
	}
	p, err := w.start("flooded", w.net, lowly(w.tool("target"), "-https", floodAddr+":443", "-cert", w.path("target.pem"), "-key", w.path("target.key"))...)
	if err != nil {
		return err
	}
	return w.net.awaitPort("tcp", floodAddr+":443", p)
}

func (w *world) close() {
	for i := len(w.undo) - 1; i >= 0; i-- {
		w.undo[i]()
	}
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }
func (w *world) tool(name string) string { return filepath.Join(w.tools, name) }

func (w *world) link() error {
	for _, s := range []*space{w.gate, w.net, w.other} {
		if _, err := output("ip", "netns", "add", s.name); err != nil {
			return err
		}
		w.undo = append(w.undo, func() { output("ip", "netns", "del", s.name) })
		if _, err := output("ip", "-n", s.name, "link", "set", "lo", "up"); err != nil {
			return err
		}
	}
	for _, l := range []struct {
		a, b           *space
		nameA, nameB   string
		addrA, addrB   string
		defaultThrough string
	}{
		{w.gate, w.net, "up0", "down0", gatewayAddr + "/24", targetAddr + "/24", ""},
		{w.gate, w.other, "door0", "eth0", doorAddr + "/31", clientAddr + "/31", doorAddr},
	} {
		for _, args := range [][]string{
			{"ip", "link", "add", l.nameA, "netns", l.a.name, "type", "veth", "peer", "name", l.nameB, "netns", l.b.name},
			{"ip", "-n", l.a.name, "addr", "add", l.addrA, "dev", l.nameA},
			{"ip", "-n", l.b.name, "addr", "add", l.addrB, "dev", l.nameB},
			{"ip", "-n", l.a.name, "link", "set", l.nameA, "up"},
			{"ip", "-n", l.b.name, "link", "set", l.nameB, "up"},
		} {
			if _, err := output(args...); err != nil {
				return err
			}
		}
		if l.defaultThrough != "" {
			if _, err := output("ip", "-n", l.b.name, "route", "add", "default", "via", l.defaultThrough); err != nil {
				return err
			}
		}
	}
	// ip netns exec shows this as /etc/resolv.conf.
	conf := filepath.Join("/etc/netns", w.gate.name)
	if err := os.MkdirAll(conf, 0o755); err != nil {
		return err
	}
	w.undo = append(w.undo, func() { os.RemoveAll(conf); os.Remove("/etc/netns") })
	if err := os.WriteFile(filepath.Join(conf, "resolv.conf"), []byte("nameserver "+targetAddr+"\n"), 0o644); err != nil {
		return err
	}
	// So that the client can also ask the target with nothing between: what is added is the difference.
	if _, err := w.gate.run("sysctl", "-qw", "net.ipv4.ip_forward=1"); err != nil {
		return err
	}
	_, err := output("ip", "-n", w.net.name, "route", "add", "10.99.0.0/24", "via", gatewayAddr)
	return err
}

// certificates makes the authority of the target and its leaf.
func (w *world) certificates() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	if err := w.certificate("ca", root, root, key, key); err != nil {
		return err
	}
	leafKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "target"}, NotBefore: root.NotBefore, NotAfter: root.NotAfter,
		DNSNames: []string{"open.test", "kept.test", "counted.test", "pass.test", "tally.test", "flood.test"}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	return w.certificate("target", leaf, root, leafKey, key)
}

func (w *world) certificate(name string, c, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(w.path(name+".pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		return err
	}
	return os.WriteFile(w.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o644)
}
