package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// drain downloads slowly, and tells as it goes how far it is.
func drain(address, sni, host, path, file string) (string, error) {
	c, err := dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	t := tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true})
	if _, err := fmt.Fprintf(t, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host); err != nil {
		return "", err
	}
	c.SetDeadline(time.Now().Add(10 * time.Minute))
	buf, total := make([]byte, 64<<10), 0
	for {
		n, err := io.ReadFull(t, buf)
		total += n
		tell := fmt.Sprint(total)
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) || n < len(buf) {
			tell += " ended: " + fmt.Sprint(err)
		}
		// In one step: whoever reads it sees all of one state.
		if err := errors.Join(os.WriteFile(file+".new", []byte(tell+"\n"), 0o644), os.Rename(file+".new", file)); err != nil {
			return "", err
		}
		if n < len(buf) {
			return tell, nil
		}
		time.Sleep(30 * time.Millisecond)
	}
}
