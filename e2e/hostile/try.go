package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// try reaches for a host by everything it knows until its time is over. Each try has a second.
func try(seconds, name, addr, addr6 string) (string, error) {
	n, err := strconv.Atoi(seconds)
	if err != nil {
		return "", err
	}
	end := time.Now().Add(time.Duration(n) * time.Second)
	var wg sync.WaitGroup
	var tries atomic.Int64
	again := func(what func()) {
		wg.Go(func() {
			for time.Now().Before(end) {
				what()
				tries.Add(1)
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	for _, host := range []string{name, addr, addr6} {
		for _, port := range []string{"22", "53", "80", "443", "8080"} {
			to := net.JoinHostPort(host, port)
			again(func() { reach("tcp", to) })
		}
		for _, port := range []string{"53", "123", "443", "40000"} {
			to := net.JoinHostPort(host, port)
			again(func() { reach("udp", to) })
		}
	}
	again(func() { ask(addr, name) })
	again(func() { echo(addr) })
	again(func() { os.WriteFile("tries", fmt.Append(nil, tries.Load()), 0o644) })
	wg.Wait()
	return fmt.Sprint(tries.Load(), " tries"), nil
}

func reach(network, address string) {
	c, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Second))
	c.Write([]byte("GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n"))
	c.Read(make([]byte, 64))
}

// echo sends an ICMP echo request, by the kind of socket that needs no rights and by the raw one.
func echo(addr string) {
	to := &syscall.SockaddrInet4{Addr: [4]byte(net.ParseIP(addr).To4())}
	for _, kind := range []int{syscall.SOCK_DGRAM, syscall.SOCK_RAW} {
		fd, err := syscall.Socket(syscall.AF_INET, kind, syscall.IPPROTO_ICMP)
		if err != nil {
			continue
		}
		syscall.Sendto(fd, []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}, 0, to)
		syscall.Close(fd)
	}
}
