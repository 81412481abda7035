package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// pace asks for a page at a steady pace, each time by name and on a connection of its own, however long the answers take. It prints
// how many came, and how long after they were due.
func pace(count, every, host, path string) (string, error) {
	n, err := strconv.Atoi(count)
	if err != nil {
		return "", err
	}
	gap, err := time.ParseDuration(every)
	if err != nil {
		return "", err
	}
	took := make([]time.Duration, n)
	var good atomic.Int64
	var wg sync.WaitGroup
	begun := time.Now()
	for i := range n {
		due := begun.Add(time.Duration(i) * gap)
		time.Sleep(time.Until(due))
		wg.Go(func() {
			if page(host, path) == http.StatusOK {
				good.Add(1)
			}
			took[i] = time.Since(due)
		})
	}
	wg.Wait()
	slices.Sort(took)
	return fmt.Sprintf("%d of %d p50 %v p99 %v", good.Load(), n, took[n/2].Round(100*time.Microsecond), took[n*99/100].Round(100*time.Microsecond)), nil
}

// page asks for one page and returns its status; 0 is none.
func page(host, path string) int {
	c, err := dial("tcp", net.JoinHostPort(host, "80"))
	if err != nil {
		return 0
	}
	defer c.Close()
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", path, host)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// flood does all at once what costs the other side something: requests that are allowed and that are not, lookups of names that nobody
// has, connections that say nothing, and large answers.
func flood(seconds, allowed, denied string) (string, error) {
	n, err := strconv.Atoi(seconds)
	if err != nil {
		return "", err
	}
	end := time.Now().Add(time.Duration(n) * time.Second)
	var tries atomic.Int64
	var wg sync.WaitGroup
	many := func(workers int, what func(i int)) {
		for range workers {
			wg.Go(func() {
				for i := 0; time.Now().Before(end); i++ {
					what(i)
					tries.Add(1)
				}
			})
		}
	}
	many(16, func(int) { page(allowed, "/") })
	many(16, func(int) { page(denied, "/") })
	many(16, func(i int) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, _ = (&net.Resolver{PreferGo: true}).LookupHost(ctx, fmt.Sprintf("n%d-%d.nobody.test", i, tries.Load()))
	})
	many(4, func(int) { page(allowed, "/bytes/33554432") })
	many(8, func(int) {
		if c, err := dial("tcp", net.JoinHostPort(allowed, "80")); err == nil {
			time.AfterFunc(time.Until(end), func() { c.Close() })
		}
		time.Sleep(20 * time.Millisecond)
	})
	wg.Wait()
	return fmt.Sprint(tries.Load(), " tries"), nil
}
