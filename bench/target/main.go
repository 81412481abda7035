// Command target is the other side of a measurement: an HTTPS server (HTTP/1.1 and h2), and an authoritative DNS server
// that gives every name under test one address.
package main

import (
	"crypto/tls"
	"flag"
	"log"
	"net"
	"net/http"
	"strconv"

	"github.com/miekg/dns"
)

func main() {
	https := flag.String("https", "", "address of the HTTPS server")
	names := flag.String("dns", "", "address of the DNS server")
	addr := flag.String("answer", "", "address that every name has")
	flood := flag.String("flood", "", "address that flood.test has instead")
	cert, key := flag.String("cert", "", "PEM"), flag.String("key", "", "PEM")
	flag.Parse()
	dns.HandleFunc(".", func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		answer := net.ParseIP(*addr)
		if q.Question[0].Name == "flood.test." {
			answer = net.ParseIP(*flood)
		}
		if q.Question[0].Qtype == dns.TypeA {
			m.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 300}, A: answer}}
		}
		w.WriteMsg(m)
	})
	for _, network := range []string{"udp", "tcp"} {
		if *names == "" {
			break
		}
		go func() { log.Fatal((&dns.Server{Addr: *names, Net: network}).ListenAndServe()) }()
	}
	http.HandleFunc("/", serve)
	s := &http.Server{Addr: *https, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	log.Fatal(s.ListenAndServeTLS(*cert, *key))
}

// block is what bodies are made of.
var block = make([]byte, 64<<10)

// serve answers with as many bytes as the query asks for: ?n=1024.
func serve(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	if err != nil {
		n = 1024
	}
	w.Header().Set("Content-Length", strconv.Itoa(n))
	for n > 0 {
		part := min(n, len(block))
		if _, err := w.Write(block[:part]); err != nil {
			return
		}
		n -= part
	}
}
