package main

import (
	"crypto/rand"
	"encoding/json"
	"io"
	"net"
	"time"
)

// Frames of the protocol that process 1 of a sandbox speaks: a type, three bytes of length, the payload.
const (
	hello  = 1
	open   = 2
	stream = 3
	stdout = 65
)

// playInit is process 1 of a sandbox, and a bad one. It never returns.
//
//	garbage   bytes that mean nothing, again and again
//	frames    a right beginning, then endless frames that nobody asked for
//	flood     a right beginning, then as many connections as there can be
//	liar      a right beginning, then endless output for every command
func playInit(mode string) {
	for {
		switch mode {
		case "garbage":
			if c, err := callHost(); err == nil {
				io.CopyN(c, rand.Reader, 1<<20)
				c.Close()
			}
		case "frames":
			if c, err := greetHost(); err == nil {
				for send(c, hello, []byte(`{}`)) == nil {
				}
				c.Close()
			}
		case "flood":
			held := map[net.Conn]bool{} // a connection that nothing holds is closed
			for c, err := greetHost(); ; c, err = callHost() {
				if err == nil {
					held[c] = true
				} else {
					time.Sleep(time.Millisecond)
				}
			}
		case "liar":
			if c, err := greetHost(); err == nil {
				lie(c)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func callHost() (net.Conn, error) { return net.Dial("unix", "/run/portreeve/init.sock") }

func greetHost() (net.Conn, error) {
	c, err := callHost()
	if err != nil {
		return nil, err
	}
	return c, send(c, hello, []byte(`{"version":1,"pid":1,"boot_id":"00000000000000000000000000000000"}`))
}

func send(w io.Writer, kind byte, payload []byte) error {
	_, err := w.Write(append([]byte{kind, byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload))}, payload...))
	return err
}

func receive(r io.Reader) (kind byte, payload []byte, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	payload = make([]byte, int(head[1])<<16|int(head[2])<<8|int(head[3]))
	_, err = io.ReadFull(r, payload)
	return head[0], payload, err
}

// lie answers each command with output that never ends.
func lie(c net.Conn) {
	block := make([]byte, 60<<10)
	for {
		kind, payload, err := receive(c)
		if err != nil || kind != open || !json.Valid(payload) {
			return
		}
		go func() {
			s, err := callHost()
			if err != nil || send(s, stream, payload) != nil {
				return
			}
			defer s.Close()
			if _, _, err := receive(s); err != nil {
				return
			}
			send(s, 64, []byte(`{"pid":7}`)) // started
			for send(s, stdout, block) == nil {
			}
		}()
	}
}
