package main

import (
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"portreeve.dev/nodes/guest/frame"
)

// relay joins the stream with a port on loopback, for programs that listen nowhere else. IPv4 first; some listen on ::1 only.
func (st *stream) relay(m frame.RelayMessage) {
	port := strconv.Itoa(int(m.Port))
	dialer := net.Dialer{Timeout: 3 * time.Second}
	conn, err := dialer.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		conn, err = dialer.Dial("tcp", "[::1]:"+port)
	}
	if err != nil {
		st.fail(fault(frame.CodeRefused, "nothing listens on loopback port %s", port))
		return
	}
	defer conn.Close()
	if err := st.w.Send(frame.Ready, nil); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pour(conn.(*net.TCPConn), st.conn) })
	both.Go(func() { pour(st.conn, conn.(*net.TCPConn)) })
	both.Wait()
}

// pour copies one way and passes the end on. An error ends both ways, an ordinary end only this one.
func pour(to, from interface {
	io.ReadWriteCloser
	CloseWrite() error
}) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close()
		from.Close()
		return
	}
	to.CloseWrite()
}
