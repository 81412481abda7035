package main

import (
	"net"
	"strconv"

	"github.com/miekg/dns"
)

// lookups asks one question so many times, over TCP, where none is lost and none repeated.
func lookups(server, name, times string) (string, error) {
	n, err := strconv.Atoi(times)
	if err != nil {
		return "", err
	}
	nc, err := dial("tcp", net.JoinHostPort(server, "53"))
	if err != nil {
		return "", err
	}
	defer nc.Close()
	question := new(dns.Msg).SetQuestion(dns.Fqdn(name), dns.TypeA)
	client, conn, code := &dns.Client{Net: "tcp", Timeout: limit}, &dns.Conn{Conn: nc}, ""
	for range n {
		answer, _, err := client.ExchangeWithConn(question, conn)
		if err != nil {
			return "", err
		}
		code = dns.RcodeToString[answer.Rcode]
	}
	return code, nil
}
