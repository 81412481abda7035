package proxy

import (
	"crypto/tls"
	"net"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// BenchmarkIdleTunnel watches what a passed connection costs that says nothing: the proxy's memory for each of some thousand, beside
// the two sockets. At most 64 KiB are wanted, sockets included (an idle TCP socket of Linux is some 4 KiB); 26 KiB are aimed at.
// The clients and servers of the benchmark hold no memory of the heap but their connections.
func BenchmarkIdleTunnel(b *testing.B) {
	const tunnels = 4000
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 5*tunnels {
		b.Fatalf("%d files may be open, %d are needed: %v", limit.Cur, 5*tunnels, err)
	}
	for b.Loop() {
		w := newWorld(b, allowPass, func(c *Config) { c.Recorder, c.Flows = nothing{}, nothing{}; c.Timeouts.Idle = time.Hour })
		ln, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		w.dialer.serve("pass.test", 443, ln.Addr().String())
		hello := helloOf(b, "pass.test")
		var held []net.Conn
		before := inUse()
		for range tunnels {
			client := w.connect("pass.test", 443)
			if _, err := client.Write(hello); err != nil {
				b.Fatal(err)
			}
			upstream, err := ln.Accept()
			if err != nil {
				b.Fatal(err)
			}
			for got := 0; got < len(hello); { // once it is through, the relay waits
				n, err := upstream.Read(hello[got:])
				if err != nil {
					b.Fatal(err)
				}
				got += n
			}
			held = append(held, upstream)
		}
		b.ReportMetric(float64(inUse()-before)/tunnels/1024, "KiB/tunnel")
		ln.Close()
		for _, c := range held {
			c.Close()
		}
	}
}

// inUse is the memory of heap and stacks, after what nobody needs is gone.
func inUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse + m.StackInuse
}

// helloOf is what a client of crypto/tls says first.
func helloOf(b *testing.B, name string) []byte {
	b.Helper()
	mine, theirs := net.Pipe()
	defer mine.Close()
	go func() { _ = tls.Client(theirs, &tls.Config{ServerName: name}).Handshake() }()
	buf := make([]byte, 4096)
	n, err := mine.Read(buf)
	if err != nil {
		b.Fatal(err)
	}
	return buf[:n]
}
