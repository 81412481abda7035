// Command standin is a process 1 for tests: it dials the control socket and answers one line for each line.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "sleep" {
		time.Sleep(time.Hour)
	}
	if len(os.Args) > 1 {
		fmt.Println(answer(os.Args[1:]))
		return
	}
	for {
		if c, err := net.Dial("unix", "/run/portreeve/init.sock"); err == nil {
			serve(c)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func serve(c net.Conn) {
	defer c.Close()
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		fmt.Fprintln(c, strconv.Quote(answer(strings.Fields(lines.Text()))))
	}
}

func answer(f []string) string {
	switch f[0] {
	case "user": // the rest, as the user
		cmd := exec.Command("/.portreeve/init", f[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1001, Gid: 1001}}
		b, err := cmd.CombinedOutput()
		return strings.TrimSpace(string(b)) + text(err)
	case "sh":
		b, err := exec.Command("/bin/sh", "-c", strings.Join(f[1:], " ")).CombinedOutput()
		return string(b) + text(err)
	case "create":
		g, err := os.OpenFile(f[1], os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			g.Close()
		}
		return text(err)
	case "fill": // PATH MiB
		g, err := os.Create(f[1])
		if err != nil {
			return text(err)
		}
		defer g.Close()
		n, _ := strconv.Atoi(f[2])
		for i := range n {
			if _, err := g.Write(make([]byte, 1<<20)); err != nil {
				return strconv.Itoa(i) + text(err)
			}
		}
		return strconv.Itoa(n)
	case "eat": // MiB
		n, _ := strconv.Atoi(f[1])
		b := make([]byte, n<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		return "ate"
	case "spawn":
		n, _ := strconv.Atoi(f[1])
		for i := range n {
			if err := exec.Command("/.portreeve/init", "sleep").Start(); err != nil {
				return strconv.Itoa(i) + text(err)
			}
		}
		return strconv.Itoa(n)
	case "env":
		return strings.Join(os.Environ(), "\n")
	case "dial":
		c, err := net.DialTimeout("tcp", f[1], 5*time.Second)
		if err == nil {
			c.Close()
		}
		return text(err)
	case "connect-unix":
		c, err := net.Dial("unix", f[1])
		if err == nil {
			c.Close()
		}
		return text(err)
	case "listen-unix":
		l, err := net.Listen("unix", f[1])
		if err == nil {
			l.Close()
		}
		return text(err)
	case "exit":
		os.Exit(0)
	}
	return "?"
}

func text(err error) string {
	var no syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &no):
		return " " + no.Error()
	}
	return " " + err.Error()
}
