package main

import (
	"encoding/binary"
	"io"
	"net"
	"strconv"
	"testing"
)

// server answers each connection with the same bytes and returns its port.
func server(t *testing.T, answer []byte) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Read(make([]byte, 4096))
			c.Write(answer)
			c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func TestOnlyAnAnswerThatIsNotOursIsOut(t *testing.T) {
	for name, c := range map[string]struct {
		answer  string
		outcome string
		out     bool
	}{
		"a page of somebody":          {"HTTP/1.1 200 OK\r\n\r\nhello", `answered "HTTP/1.1 200 OK\r\n\r\nhello"`, true},
		"a denial of ours":            {"HTTP/1.1 403 Forbidden\r\nPortreeve-Decision: dec_1\r\n\r\n", "denied", false},
		"a TLS alert":                 {"\x15\x03\x03\x00\x02\x02\x70", "denied by alert", false},
		"an alert with more after it": {"\x15\x03\x03\x00\x02\x02\x70!", "answered \"\\x15\\x03\\x03\\x00\\x02\\x02p!\"", true},
		"nothing":                     {"", "closed: end", false},
	} {
		t.Run(name, func(t *testing.T) {
			outcome, out := tcp("tcp4", "127.0.0.1", server(t, []byte(c.answer))).try()
			if outcome != c.outcome || out != c.out {
				t.Errorf("%q, out %v; want %q, %v", outcome, out, c.outcome, c.out)
			}
		})
	}
}

func TestClosedPortIsNotOut(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	for _, a := range []attempt{tcp("tcp4", "127.0.0.1", port), query("tcp4", "127.0.0.1", port)} {
		if outcome, out := a.try(); out || outcome != "refused" {
			t.Errorf("%s: %q, out %v", a.name, outcome, out)
		}
	}
}

// answered is the DNS answer to the query with one address, or with an error code alone.
func answered(query []byte, code byte, addr []byte) []byte {
	m := append([]byte(nil), query...)
	m[2] |= 0x80
	m[3] = m[3]&0xf0 | code
	if addr != nil {
		binary.BigEndian.PutUint16(m[6:], 1)
		m = append(m, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4)
		m = append(m, addr...)
	}
	return m
}

func TestAddressOfSomebodyElseIsOut(t *testing.T) {
	q := question("example.com")
	for name, c := range map[string]struct {
		answer []byte
		out    bool
	}{
		"an address of the world":       {answered(q, 0, []byte{93, 184, 216, 34}), true},
		"an address of ours":            {answered(q, 0, []byte{198, 18, 0, 16}), false},
		"the last one of ours":          {answered(q, 0, []byte{198, 19, 255, 255}), false},
		"one past ours":                 {answered(q, 0, []byte{198, 20, 0, 0}), true},
		"no such name":                  {answered(q, 3, nil), false},
		"something that is no answer":   {q, true},
		"something too short to be one": {q[:11], true},
	} {
		t.Run(name, func(t *testing.T) {
			if said, out := readAnswer(c.answer); out != c.out {
				t.Errorf("%q, out %v", said, out)
			}
		})
	}
}

func TestDatagramThatIsAnsweredIsOut(t *testing.T) {
	c, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		buffer := make([]byte, 2048)
		if n, from, err := c.ReadFrom(buffer); err == nil {
			c.WriteTo(buffer[:n], from)
		}
	}()
	if said, out := udp("udp4", "127.0.0.1", c.LocalAddr().(*net.UDPAddr).Port).try(); !out {
		t.Errorf("%q is not out", said)
	}
}

func TestResultsKeepTheirOrder(t *testing.T) {
	var all []attempt
	for i := range 30 {
		all = append(all, attempt{name: strconv.Itoa(i), try: func() (string, bool) { return strconv.Itoa(i), i == 7 }})
	}
	for i, r := range runAll(all) {
		if r.Attempt != strconv.Itoa(i) || r.Outcome != r.Attempt || r.Out != (i == 7) {
			t.Errorf("result %d is %+v", i, r)
		}
	}
	if kind(io.EOF) != "end" {
		t.Error("the end of a stream has another name")
	}
}
