package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

func overTLS(address, sni, host, path string) (string, error) {
	c, err := dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	// Whose certificate comes back is printed, not judged: the tests say who may answer.
	t := tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true})
	if err := t.Handshake(); err != nil {
		return "", err
	}
	answer, err := get(t, host, path)
	return strings.Join(t.ConnectionState().PeerCertificates[0].DNSNames, ",") + " " + answer, err
}

func inTheClear(address, host, path string) (string, error) {
	c, err := dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return get(c, host, path)
}

// get returns status line and body on one line.
func get(c net.Conn, host, path string) (string, error) {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host); err != nil {
		return "", err
	}
	all, err := io.ReadAll(io.LimitReader(c, 64<<10))
	if len(all) == 0 && err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", io.EOF
	}
	head, body, _ := strings.Cut(string(all), "\r\n\r\n")
	status, _, _ := strings.Cut(head, "\r\n")
	return status + " " + strings.Join(strings.Fields(body), " "), nil
}

// requests sends each pair of target and Host and returns the statuses; "end" stands for those that had no answer.
func requests(address string, pairs []string) (string, error) {
	c, err := dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	r := bufio.NewReader(c)
	var statuses []string
	for i := 0; i < len(pairs); i += 2 {
		status := "end"
		if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", pairs[i], pairs[i+1]); err == nil {
			if resp, err := http.ReadResponse(r, nil); err == nil {
				status = fmt.Sprint(resp.StatusCode)
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		statuses = append(statuses, status)
	}
	return strings.Join(statuses, " "), nil
}

func plain(address string) (string, error) {
	c, err := dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line), err
}

func packet(address string) (string, error) {
	c, err := dial("udp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return "", err
	}
	buf := make([]byte, 512)
	n, err := c.Read(buf)
	return strings.TrimSpace(string(buf[:n])), err
}

// hold speaks once and then waits for the end, two minutes at most.
func hold(address string) (string, error) {
	c, err := dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return "", err
	}
	r := bufio.NewReader(c)
	if _, err := r.ReadString('\n'); err != nil {
		return "", err
	}
	start := time.Now()
	c.SetDeadline(start.Add(2 * time.Minute))
	_, err = r.ReadByte()
	return fmt.Sprintf("%.1f s: %v", time.Since(start).Seconds(), err), nil
}

func resolve(name string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	addrs, err := (&net.Resolver{PreferGo: true}).LookupHost(ctx, name)
	return strings.Join(addrs, " "), err
}

func ask(server, name string) (string, error) {
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dial(network, net.JoinHostPort(server, "53"))
	}}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	addrs, err := r.LookupHost(ctx, name)
	return strings.Join(addrs, " "), err
}
