package bank

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"portreeve.dev/lab"
)

// hosts adds the names and servers that only rows ask for.
func (w *world) hosts() {
	at := func(text string) lab.Record { return lab.At(netip.MustParseAddr(text)) }
	for name, r := range map[string]lab.Record{
		"*.evil.test":    lab.At(w.lab.Evil.Addr, w.lab.Evil.Addr6),
		"*.b.wild.test":  lab.At(w.lab.Addr("x.wild.test")),
		"cgnat.test":     at("100.64.0.1"),
		"multicast.test": at("224.0.0.1"),
		"future.test":    at("240.0.0.1"),
		"synthetic.test": at("198.18.0.1"),
		"benchmark.test": at("198.19.255.1"),
		"gateway.test":   at("203.0.113.2"),

		"aliasprivate.test":  {CNAME: "private.test", TTL: 30},
		"aliasmetadata.test": {CNAME: "metadata.google.internal", TTL: 30},
		"onlyprivate.test":   lab.At(netip.MustParseAddr("192.168.1.1"), netip.MustParseAddr("10.9.9.9")),
		"mixed2.test":        lab.At(netip.MustParseAddr("192.168.1.1"), w.lab.Addr("good.test")),
		"stray.test":         odd(w.lab.Addr("good.test"), lab.Odd{Stray: map[string]netip.Addr{"straytarget.test": w.lab.Evil.Addr, "x.evil.test": w.lab.Evil.Addr}}),
		"big.test":           odd(w.lab.Addr("good.test"), lab.Odd{Pad: 4096}),
		"forged.test":        odd(w.lab.Addr("good.test"), lab.Odd{Forged: w.lab.Evil.Addr}),
		"onlyforged.test":    odd(w.lab.Addr("good.test"), lab.Odd{Forged: w.lab.Evil.Addr, Only: true}),
		"loopanswer.test":    odd(w.lab.Addr("good.test"), lab.Odd{Loop: true}),
		"turn.wild.test":     {Answers: [][]netip.Addr{{w.lab.Addr("x.wild.test")}, {w.lab.Addr("good.test")}}, TTL: 1},
		"six.test":           lab.At(w.lab.Evil.Addr6),
	} {
		w.lab.DNS.Set(name, r)
	}
	for i := range 8 {
		w.lab.DNS.Set(fmt.Sprintf("rebind%d.test", i+1), lab.Record{Answers: [][]netip.Addr{{w.lab.Addr("good.test")}, {netip.MustParseAddr("127.0.0.1")}}})
	}
	// Every answer is another one, for a thousand tries: the lab's server or, on the same port, the API of the gateway itself.
	w.lab.DNS.Set("rebound.test", lab.Record{Answers: [][]netip.Addr{{w.lab.TCP.Addr}, {netip.MustParseAddr("127.0.0.1")}}})
	web := lab.At(w.lab.TCP.Addr)
	w.lab.DNS.Set("badh2.test", web)
	names := []string{"opened.test", "more.test", "port.test", "github.com", "registry.npmjs.org", "dns.google", "dns.example"}
	for _, name := range names {
		w.lab.DNS.Set(name, web)
	}
	w.serve(":443", w.certificate(names...), w.web())
	w.serve(":8080", w.certificate(names...), w.web())
	w.serve(":80", nil, w.web())
	w.serveBadFrames(":5432", w.certificate("badh2.test"))
	w.lab.DNS.Set("hidden.test", lab.At(w.lab.Addr("wrongname.test")))
	reads := w.certificate("hidden.test")
	reads.EncryptedClientHelloKeys = []tls.EncryptedClientHelloKey{hiddenNames(w.t, "hidden.test")}
	w.serveAt(w.lab.Addr("wrongname.test").String()+":8080", reads, w.web())
}

func odd(addr netip.Addr, o lab.Odd) lab.Record {
	return lab.Record{Answers: [][]netip.Addr{{addr}}, TTL: 30, Odd: o}
}

// hiddenNames is a key with which a server reads encrypted hellos under a public name.
func hiddenNames(t *testing.T, public string) tls.EncryptedClientHelloKey {
	t.Helper()
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pub := key.PublicKey().Bytes()
	body := append([]byte{7, 0, 0x20, 0, byte(len(pub))}, pub...)
	body = append(body, 0, 4, 0, 1, 0, 1, 32, byte(len(public)))
	body = append(append(body, public...), 0, 0)
	config := append([]byte{0xfe, 0x0d, 0, byte(len(body))}, body...)
	return tls.EncryptedClientHelloKey{Config: config, PrivateKey: key.Bytes(), SendAsRetry: true}
}

// web is the lab's web server with what only rows ask for before it.
func (w *world) web() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", w.lab.Web)
	mux.HandleFunc("/trailers/", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Trailer", "Grpc-Status")
		w.lab.Web.ServeHTTP(rw, r)
		rw.Header().Set("Grpc-Status", "0")
	})
	return mux
}

func (w *world) certificate(names ...string) *tls.Config {
	w.t.Helper()
	cert, err := w.lab.CA.Issue(time.Now().Add(12*time.Hour), names...)
	if err != nil {
		w.t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}}
}

// serve runs a web server on a port of the lab's address for plain services.
func (w *world) serve(port string, config *tls.Config, h http.Handler) {
	w.t.Helper()
	w.serveAt(w.lab.TCP.Addr.String()+port, config, h)
}

func (w *world) serveAt(at string, config *tls.Config, h http.Handler) {
	w.t.Helper()
	l, err := w.lab.Net.Listen("tcp", at)
	if err != nil {
		w.t.Fatal(err)
	}
	s := &http.Server{Handler: h, TLSConfig: config, ReadHeaderTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	var done sync.WaitGroup
	done.Go(func() {
		if config == nil {
			s.Serve(l)
		} else {
			s.ServeTLS(l, "", "")
		}
	})
	w.t.Cleanup(func() {
		s.Close()
		done.Wait()
	})
}

var senderFile = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sender")
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "sender")
	out, err := exec.Command("go", "build", "-o", file, "./sender").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return file, nil
})

// understood asks the sender whether it can play these.
func understood(t *testing.T, plays []*play) {
	t.Helper()
	file, err := senderFile()
	if err != nil {
		t.Fatal(err)
	}
	var cases []any
	for _, p := range plays {
		cases = append(cases, map[string]any{"id": p.String(), "path": p.path, "do": p.kase.Do})
	}
	data, err := json.Marshal(map[string]any{"cases": cases})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(file, "check")
	cmd.Stdin = strings.NewReader(string(data))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s", out)
	}
}
