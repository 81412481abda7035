package server

import (
	"net"
	"testing"
	"time"
)

// TestSilentCrowdKeepsNobodyOut: with all places taken by connections that say nothing, one that speaks is served at once.
func TestSilentCrowdKeepsNobodyOut(t *testing.T) {
	h := newHalved(t)
	h.slots = make(chan struct{}, 4)
	h.patience = time.Minute
	h.start(t)
	var crowd []net.Conn
	for range cap(h.slots) + 3 {
		crowd = append(crowd, h.dial(t))
	}
	honest := h.dial(t)
	honest.Write([]byte("G"))
	got := make(chan net.Conn, 1)
	go func() {
		if c, err := h.plain.Accept(); err == nil {
			got <- c
		}
	}()
	select {
	case c := <-got:
		c.Close()
	case <-time.After(5 * time.Second):
		t.Fatal("it waits behind the silent ones")
	}
	closed(t, crowd[0]) // the oldest made room
}
