package main

import (
	"net"
	"os"
)

// catch answers "caught" for as long as it lives; the file caught appears in the working folder once it listens.
func catch(port string) (string, error) {
	l, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return "", err
	}
	p, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return "", err
	}
	go func() {
		buf := make([]byte, 512)
		for {
			_, from, err := p.ReadFrom(buf)
			if err != nil {
				return
			}
			p.WriteTo([]byte("caught\n"), from)
		}
	}()
	if err := os.WriteFile("caught", nil, 0o644); err != nil {
		return "", err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return "", err
		}
		c.Write([]byte("caught\n"))
		c.Close()
	}
}
