package main

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// notFound is a refusal that has a word of its own.
type notFound struct{ word string }

func (e *notFound) Error() string { return e.word }

// nameServer is the first of resolv.conf.
func nameServer() string {
	f, err := os.Open("/etc/resolv.conf")
	if err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if fields := strings.Fields(lines.Text()); len(fields) > 1 && fields[0] == "nameserver" {
				return fields[1]
			}
		}
	}
	return "127.0.0.1"
}

// resolve asks once, for A alone, so that one try is one question.
func (t *talk) resolve(host string) (string, error) {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(host), dns.TypeA)
	c := &dns.Client{Timeout: t.limit}
	in, _, err := c.Exchange(m, net.JoinHostPort(nameServer(), "53"))
	if err != nil {
		return "", err
	}
	for _, rr := range in.Answer {
		if a, is := rr.(*dns.A); is {
			return a.A.String(), nil
		}
	}
	return "", &notFound{rcode(in)}
}

func rcode(in *dns.Msg) string {
	word := strings.ToLower(dns.RcodeToString[in.Rcode])
	if in.Rcode == dns.RcodeSuccess && len(in.Answer) == 0 {
		word = "empty"
	}
	return word
}

func (t *talk) lookup(d *dnsStep) said {
	server := d.Server
	if server == "" {
		server = nameServer()
	}
	if _, _, err := net.SplitHostPort(server); err != nil {
		server = net.JoinHostPort(server, "53")
	}
	if d.Times > 0 {
		return t.lookups(d, server)
	}
	data, err := d.message(d.Name)
	if err != nil {
		return bad("%v", err)
	}
	network := "udp"
	if d.TCP {
		network = "tcp"
	}
	c, err := net.DialTimeout(network, server, t.limit)
	if err != nil {
		return bad("%s", word(err))
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(t.limit))
	if d.TCP {
		return overTCP(c, data, d)
	}
	if _, err := c.Write(data); err != nil {
		return bad("%s", word(err))
	}
	buf := make([]byte, 65535)
	n, err := c.Read(buf)
	if err != nil {
		return bad("%s", word(err))
	}
	return spoken(buf[:n])
}

func (d *dnsStep) message(name string) ([]byte, error) {
	if d.Hex != "" {
		return unhex(d.Hex)
	}
	kind, known := dns.StringToType[strings.ToUpper(d.Type)]
	if d.Type == "" {
		kind, known = dns.TypeA, true
	}
	if !known {
		if _, err := fmt.Sscanf(d.Type, "TYPE%d", &kind); err != nil {
			return nil, fmt.Errorf("no such type as %s", d.Type)
		}
	}
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), kind)
	return m.Pack()
}

func overTCP(c net.Conn, data []byte, d *dnsStep) said {
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(data))), data...)
	want := 1
	if d.Twice {
		framed, want = append(framed, framed...), 2
	}
	each := len(framed)
	if d.Split {
		each = 1
	}
	for len(framed) > 0 {
		if _, err := c.Write(framed[:each]); err != nil {
			return bad("%s", word(err))
		}
		framed = framed[each:]
		each = min(each, len(framed))
		if d.Split {
			time.Sleep(2 * time.Millisecond)
		}
	}
	var all []string
	for range want {
		var size [2]byte
		if _, err := io.ReadFull(c, size[:]); err != nil {
			return bad("%s", word(err))
		}
		buf := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(c, buf); err != nil {
			return bad("%s", word(err))
		}
		all = append(all, spoken(buf).Outcome)
	}
	return ok("%s", strings.Join(all, " and "))
}

// spoken says an answer: its addresses, or its code.
func spoken(data []byte) said {
	in := new(dns.Msg)
	if err := in.Unpack(data); err != nil {
		return bad("unreadable: %v", err)
	}
	var all []string
	for _, rr := range in.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			all = append(all, rr.A.String())
		case *dns.AAAA:
			all = append(all, rr.AAAA.String())
		default:
			all = append(all, dns.TypeToString[rr.Header().Rrtype])
		}
	}
	s := ok("%s", strings.Join(all, " "))
	if len(all) == 0 {
		s = ok("%s", rcode(in))
	}
	if in.Truncated {
		s.Outcome += " truncated"
	}
	if in.Rcode != dns.RcodeSuccess {
		s.OK = false
	}
	s.Body = cut(in.String())
	return s
}

// lookups asks for as many names below Name and counts the answers.
func (t *talk) lookups(d *dnsStep, server string) said {
	c, err := net.DialTimeout("udp", server, t.limit)
	if err != nil {
		return bad("%s", word(err))
	}
	defer c.Close()
	count := map[string]int{}
	buf := make([]byte, 65535)
	for range d.Times {
		var label [24]byte
		rand.Read(label[:])
		data, err := d.message(hex.EncodeToString(label[:]) + "." + d.Name)
		if err != nil {
			return bad("%v", err)
		}
		c.SetDeadline(time.Now().Add(300 * time.Millisecond))
		c.Write(data)
		n, err := c.Read(buf)
		what := "silent"
		if err == nil {
			if what = spoken(buf[:n]).Outcome; strings.Contains(what, ".") {
				what = "address"
			}
		}
		count[what]++
	}
	return ok("%s", counted(count))
}

// counted says how often each thing came.
func counted(count map[string]int) string {
	var all []string
	for what, n := range count {
		all = append(all, fmt.Sprint(what, " ", n))
	}
	sort.Strings(all)
	return strings.Join(all, ", ")
}
