package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// askSelf asks the one address of the product's that a sandbox reaches, with exactly the headers that are given, and returns status
// and body on one line.
func askSelf(method, path, body string, headers []string) (string, error) {
	r, err := http.NewRequest(method, "http://portreeve.internal"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	resp, err := (&http.Client{Timeout: 40 * time.Second}).Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(io.LimitReader(resp.Body, 256<<10))
	return fmt.Sprint(resp.StatusCode, " ", strings.Join(strings.Fields(string(all)), " ")), err
}
